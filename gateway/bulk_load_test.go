package gateway

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/internal/pgtest"
	"github.com/fencegate/fencegate/store"
)

// newCramped is a gateway whose store lets few writes wait.
func newCramped(t *testing.T, waitingMax int) *harness {
	t.Helper()
	h := &harness{databaseURL: pgtest.Migrated(t)}
	opened, err := store.Open(t.Context(), store.Config{DatabaseURL: h.databaseURL})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(opened.Close)
	if h.store, err = store.NewService(opened, store.ServiceConfig{Group: store.GroupConfig{QueueMax: waitingMax}}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	running.Go(func() { h.store.Run(ctx, func(error) {}) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	h.recorder = store.NewRecorder(opened)
	if h.gateway, err = New(Config{Logger: slog.New(defects{slog.DiscardHandler, t}), RequestTimeout: time.Minute}, h.store, h.recorder, NewMetrics("test")); err != nil {
		t.Fatal(err)
	}
	h.client = serve(t, conforming(t, h.gateway))
	return h
}

// Where the store has no room, a stream waits. No line is refused for it, and none overtakes another of its resource.
func TestBulkWaitsForRoom(t *testing.T) {
	h := newCramped(t, 4)
	const streams, each = 6, 500
	var sending sync.WaitGroup
	for i := range streams {
		lease := h.acquire(t, fmt.Sprintf("job/%d", i), "worker")
		sending.Go(func() {
			var body strings.Builder
			for n := range int64(each) {
				body.WriteString(putLine(lease, n+1, "k", fmt.Sprint(n)))
			}
			verdicts, end := h.bulk(t, body.String())
			if len(verdicts) != each || end.End != api.BulkComplete {
				t.Errorf("%d verdicts, and the end %s", len(verdicts), end.text)
			}
			for n, got := range verdicts {
				if got.Code != "" || *got.Version != int64(n)+1 {
					t.Errorf("line %d: %s", n+1, got.text)
					return
				}
			}
		})
	}
	sending.Wait()
	if h.store.GroupStats().Refused == 0 {
		t.Error("there was room all the time")
	}
}
