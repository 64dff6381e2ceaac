package gateway

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/internal/testenv/postgres"
	"github.com/fencegate/fencegate/store"
)

// A stream waits where the queue of writes is full. No line is refused, and the lines of a resource keep their order.
func TestBulkWaitsForRoom(t *testing.T) {
	h := newCramped(t, 4)
	const streams, each = 6, 100
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
				t.Errorf("received %d verdicts and the end %s, want %d and complete", len(verdicts), end.text, each)
			}
			for n, got := range verdicts {
				if got.Code != "" || *got.Version != int64(n)+1 {
					t.Errorf("the verdict on line %d is %s, want version %d", n+1, got.text, n+1)
					return
				}
			}
		})
	}
	sending.Wait()
	if h.store.GroupStats().Refused == 0 {
		t.Error("the queue was never full")
	}
}

// After a line with an unknown outcome, no later line of its resource is admitted. A holder may conclude from an
// admitted write that the earlier ones were applied, or refused for their data.
func TestBulkAfterAnUndecidedLine(t *testing.T) {
	database := store.Config{DatabaseURL: postgres.Migrated(t)}
	lease := newHarnessOn(t, Config{}, database).acquire(t, "job", "worker")
	database.StatementTimeout = 150 * time.Millisecond
	h := newHarnessOn(t, Config{}, database)
	sequence := int64(0)
	// The first round holds the fence until a line fails. The others unlock it about that time.
	patience, undecided := time.Minute, 0
	const rounds = 8
	for round := range rounds {
		unlock := sync.OnceFunc(h.holdFence(t, "job"))
		stream := h.openBulk(t)
		begun := time.Now()
		free := time.AfterFunc(patience-10*time.Millisecond+time.Duration(round)*time.Millisecond, unlock)
		sending := make(chan struct{})
		go func() {
			defer close(sending)
			for range 300 {
				sequence++
				if _, err := io.WriteString(stream.send, putLine(lease, sequence, "k", "1")); err != nil {
					return
				}
			}
			_ = stream.send.Close()
		}()
		failed := stream.failedInOrder(t, func() {
			if round == 0 {
				patience = time.Since(begun)
			}
			unlock()
		})
		if failed {
			undecided++
		}
		free.Stop()
		unlock()
		stream.hangUp()
		<-sending
	}
	t.Logf("in %d of %d rounds the outcome of a line was unknown", undecided, rounds)
}

// failedInOrder reads all verdicts on lines of one resource, and returns whether one was unavailable. After it none may
// be admitted.
func (b *bulkClient) failedInOrder(t *testing.T, first func()) (failed bool) {
	t.Helper()
	for {
		switch got := b.next(t); {
		case got.End == api.BulkUnavailable && failed, got.End == api.BulkComplete:
			return failed
		case got.Code == api.CodeUnavailable && !failed:
			failed = true
			first()
		case got.Code != "" && got.Code != api.CodeUnavailable, got.End != "":
			t.Fatalf("received %s, want a verdict that admits or is unavailable", got.text)
		case failed && got.Code == "":
			t.Fatalf("the line %s was admitted after an unavailable one", got.text)
		}
	}
}
