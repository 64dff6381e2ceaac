//go:build unix

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fencegate/fencegate/internal/bench/writes"
)

func TestBenchAloneMeasuresWrites(t *testing.T) {
	for want, args := range map[string][]string{
		"bench writes": {"bench", "--clients", "1,8", "--rounds", "2", "--targets", "direct,store", "--goals"},
		"bench locks":  {"bench", "locks", "--measure", "crowd", "--waiters", "500"},
	} {
		parser, err := newParser(&commands{}, &console{}, func(int) {})
		if err != nil {
			t.Fatal(err)
		}
		selected, err := parser.Parse(args)
		if err != nil || selected.Command() != want {
			t.Errorf("%q: got %v, %v", args, selected, err)
		}
	}
}

func TestBenchShowsAnEarlierRunAgain(t *testing.T) {
	file := filepath.Join(t.TempDir(), "report.json")
	report := writes.Report{Samples: []writes.Sample{{Case: writes.Case{Measure: writes.Throughput, Clients: 8}, Target: "direct", Round: 1, PerSecond: 7}}}
	text, err := json.Marshal(report)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	var out, errors bytes.Buffer
	plot := filepath.Join(t.TempDir(), "plot.svg")
	if code := run(t.Context(), []string{"bench", "writes", "--from", file, "--goals", "--plot", plot}, nil, &out, &errors); code != exitOK {
		t.Fatalf("exit %d: %s", code, &errors)
	}
	drawn, err := os.ReadFile(plot)
	if err != nil || !bytes.Contains(drawn, []byte("</svg>")) {
		t.Errorf("the plot is %q, %v", drawn, err)
	}
	for _, want := range []string{"direct", "store / direct, 64 clients", "not measured"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in\n%s", want, &out)
		}
	}
}

func TestBenchOfARunningGatewayNeedsItsDatabase(t *testing.T) {
	var out, errors bytes.Buffer
	code := run(t.Context(), []string{"bench", "writes", "--url", "http://127.0.0.1:1"}, nil, &out, &errors)
	if code == exitOK || !strings.Contains(errors.String(), "--database-url") {
		t.Errorf("exit %d: %s", code, &errors)
	}
}

func TestTheEmptyHandlerAnswersWrites(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	out, write := io.Pipe()
	ended := make(chan int)
	go func() {
		ended <- run(ctx, []string{"bench", "floor", "--listen", "127.0.0.1:0"}, nil, write, io.Discard)
	}()
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	_, url, _ := strings.Cut(strings.TrimSpace(line), "http://")
	request, err := http.NewRequestWithContext(ctx, http.MethodPut, "http://"+url+"/v1/resources/a/b/records/c", strings.NewReader("value"))
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	if response.StatusCode != http.StatusOK {
		t.Errorf("status %d", response.StatusCode)
	}
	stop()
	if code := <-ended; code != exitOK {
		t.Errorf("exit %d", code)
	}
}
