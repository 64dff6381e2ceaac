package gateway

import (
	"context"
	"fmt"
	"io"
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

// After a line that could not be decided no later one of its resource is admitted, wherever it was on its way: so a holder may conclude from
// an admitted write that those before it were applied, or refused for their data.
func TestBulkAfterAnUndecidedLine(t *testing.T) {
	h := newHarnessOn(t, Config{}, store.Config{DatabaseURL: pgtest.Migrated(t), StatementTimeout: 150 * time.Millisecond})
	lease := h.acquire(t, "job", "worker")
	sequence := int64(0)
	undecided := 0
	for round := range 8 {
		letGo := h.holdFence(t, "job")
		stream := h.openBulk(t)
		sending := make(chan struct{})
		go func() {
			defer close(sending)
			for range 20_000 {
				sequence++
				if _, err := io.WriteString(stream.send, putLine(lease, sequence, "k", "1")); err != nil {
					return
				}
			}
			_ = stream.send.Close()
		}()
		h.awaitWaiting(t, 1)
		time.Sleep(100*time.Millisecond + time.Duration(round)*20*time.Millisecond) // about when the statement is given up
		letGo()
		failed := false
		for {
			got := stream.next(t)
			if got.End != "" {
				if want := map[bool]string{true: api.BulkUnavailable, false: api.BulkComplete}[failed]; got.End != want && !failed {
					t.Errorf("the end is %s, want %s", got.text, want)
				}
				break
			}
			switch {
			case got.Code == api.CodeUnavailable:
				failed = true
			case got.Code != "":
				t.Fatalf("round %d: %s", round, got.text)
			case failed:
				t.Fatalf("round %d: after an undecided line was admitted %s", round, got.text)
			}
		}
		if failed {
			undecided++
		}
		stream.hangUp()
		<-sending
	}
	if undecided == 0 {
		t.Error("every line was decided")
	}
	t.Logf("in %d of 8 rounds a line was not decided", undecided)
}
