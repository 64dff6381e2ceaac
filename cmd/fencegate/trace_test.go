package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"

	"github.com/fencegate/fencegate/internal/testenv/postgres"
)

// A collector that takes spans and never answers keeps nothing from being served, nor the gateway from ending. Every
// line of the log is JSON.
func TestServeEndsWithoutItsCollector(t *testing.T) {
	t.Parallel()
	called, end := make(chan struct{}, 100), make(chan struct{})
	collector := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		called <- struct{}{}
		<-end
	}))
	t.Cleanup(collector.Close)
	t.Cleanup(func() { close(end) })
	serve := shell{t: t}.start("serve", "--database-url", postgres.Migrated(t), "--listen", "127.0.0.1:0", "--log-format",
		"json",
		"--access-log-sample", "1", "--trace-endpoint", collector.URL)
	serve.says(" serves on ")
	_, url, _ := strings.Cut(strings.TrimSpace(serve.out.String()), " serves on ")
	s := shell{t, url}
	s.must("lock", "acquire", "a")
	<-called
	s.must("lock", "get", "a")
	serve.signal(syscall.SIGTERM)
	got := serve.wants(exitOK, "the last spans are not delivered")
	requests := 0
	for line := range strings.Lines(got.errOut) {
		var keys map[string]any
		if err := json.Unmarshal([]byte(line), &keys); err != nil || keys["time"] == nil || keys["level"] == nil ||
			keys["msg"] == nil {
			t.Errorf("%q: %v", line, err)
		}
		if keys["msg"] == "request" && keys["trace_id"] != nil {
			requests++
		}
	}
	if requests != 2 {
		t.Errorf("%d requests are logged with their trace: %s", requests, got.errOut)
	}
}

func TestServeRefusesWrongTracing(t *testing.T) {
	t.Parallel()
	url := postgres.Migrated(t)
	for flag, value := range map[string]string{"--trace-endpoint": "collector:4317", "--trace-sample-ratio": "2",
		"--access-log-sample": "-1"} {
		args := []string{"serve", "--database-url", url, "--listen", "127.0.0.1:0", flag + "=" + value}
		if got := (shell{t: t}).do(args...); got.code == exitOK || !strings.Contains(got.errOut, flag) {
			t.Errorf("%s=%s: exit code %d: %s", flag, value, got.code, got.errOut)
		}
	}
}
