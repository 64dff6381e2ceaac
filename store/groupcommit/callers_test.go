package groupcommit_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/internal/test/testenv/enginetest"
	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/engine"
	"github.com/fencegate/fencegate/store/groupcommit"
	"github.com/fencegate/fencegate/store/postgres"
)

// A caller that leaves while its write waits gets not_applied, and the write is not applied. A caller that leaves after
// its write was sent gets unknown, and the write goes on. Each gets one verdict, and the neighbours do not notice.
func TestGroupCallerLeaves(t *testing.T) {
	t.Parallel()
	g := newGroupbed(t, narrow)
	ctx, cancel := context.WithCancel(t.Context())
	commit := func(write store.Write) <-chan reply {
		answers := make(chan reply, 1)
		go func() {
			result, err := g.Commit(ctx, write)
			answers <- reply{result, err}
		}()
		return answers
	}
	first := g.submitPlug(t, "first")
	g.hold(t, 2)
	beside := g.submit(t.Context(), t, g.put(t, "beside", 1, "x"))
	inFlight := map[string]<-chan reply{"commit": commit(g.put(t, "a", 1, plug2))}
	await.True(t, "both wait", func() bool { return g.Stats().Queued == 2 })
	g.pull(t, 1)
	admitted(t, "the first", first)
	g.awaitPlugged(t)
	for _, resource := range []store.Name{"b", "c", "e"} {
		g.put(t, resource, 1, "")
	}
	queued := map[string]<-chan reply{
		"commit": commit(g.put(t, "b", 1, "x")), "another": commit(g.put(t, "c", 1, "x")),
		"behind": commit(g.put(t, "a", 2, "x")),
	}
	await.True(t, "all wait", func() bool { return g.Stats().Queued == 3 })
	neighbour := g.submit(t.Context(), t, g.put(t, "d", 1, "x"))

	cancel()
	for name, answer := range inFlight {
		if got := unavailable(t, name, answer, store.OutcomeUnknown); !errors.Is(got.err, context.Canceled) {
			t.Errorf("%s returned %v", name, got.err)
		}
	}
	for name, answer := range queued {
		unavailable(t, name, answer, store.OutcomeNotApplied)
	}
	if stats := g.Stats(); stats.Queued != 1 || stats.QueuedBytes == 0 {
		t.Errorf("one is left, and it is %+v", stats)
	}
	unavailable(t, "a caller that left before", commit(g.put(t, "e", 1, "x")), store.OutcomeNotApplied)
	g.pull(t, 2)
	admitted(t, "the write beside", beside)
	admitted(t, "the neighbour", neighbour)
	await.True(t, "the batches have ended", func() bool { return g.Stats().InFlight == groupcommit.Lanes[int64]{} })
	g.expectStored(t, map[store.Name]string{"a": plug2, "b": "nothing", "c": "nothing", "d": "x", "e": "nothing"})
	if stats := g.Stats(); stats.Queued != 0 || stats.QueuedBytes != 0 || stats.Writes != 4 {
		t.Errorf("in the end it is %+v", stats)
	}
}

// The end of its context does not withdraw a write that was submitted: what is behind it on its resource would be
// applied without it.
func TestGroupSubmitIsNotWithdrawn(t *testing.T) {
	t.Parallel()
	g := newGroupbed(t, narrow)
	ctx, cancel := context.WithCancel(t.Context())
	g.hold(t, 1)
	sent := g.submit(ctx, t, g.put(t, "a", 1, plug))
	g.awaitPlugged(t)
	queued := g.submit(ctx, t, g.put(t, "b", 1, "1"))
	cancel()
	late := g.submit(ctx, t, g.put(t, "b", 2, "2"))
	behind := g.submit(t.Context(), t, g.put(t, "b", 3, "3"))
	g.pull(t, 1)
	admitted(t, "what was sent", sent)
	admittedInOrder(t, []<-chan reply{queued, late, behind})
}

// A caller that commits alone and leaves gets unknown, and delays no other.
func TestGroupSingleCallerLeaves(t *testing.T) {
	t.Parallel()
	g := newGroupbed(t, narrow)
	ctx, cancel := context.WithCancel(t.Context())
	g.hold(t, 1)
	answer := make(chan error, 1)
	write := g.put(t, "a", 1, plug)
	go func() {
		_, err := g.Commit(ctx, write)
		answer <- err
	}()
	g.awaitPlugged(t)
	behind := g.submit(t.Context(), t, g.put(t, "a", 2, "x"))
	beside := g.submit(t.Context(), t, g.put(t, "b", 1, "x"))
	cancel()
	if err := enginetest.Unavailable(<-answer, store.OutcomeUnknown); err != nil {
		t.Error(err)
	}
	unavailable(t, "the write behind", behind, store.OutcomeNotApplied)
	admitted(t, "the write beside", beside)
	g.pull(t, 1)
}

// What would be too much is refused at once, and what was taken is not forgotten.
func TestGroupIsFull(t *testing.T) {
	t.Parallel()
	value := strings.Repeat("v", 1<<10)
	for name, config := range map[string]groupcommit.Config{
		"writes": {BatchesMax: 3, QueueMax: 10},
		"bytes":  {BatchesMax: 3, QueueBytesMax: 11 << 10}, // names count, too
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGroupbed(t, config)
			var writes []store.Write
			for i := range 12 {
				writes = append(writes, g.put(t, enginetest.Numbered("r", i), 1, value))
			}
			plugged := g.submitPlug(t, "plug")
			answers := g.submitAll(t, writes[:10]...)
			for _, write := range writes[10:] {
				got := unavailable(t, "one too many", g.submit(t.Context(), t, write), store.OutcomeNotApplied)
				_, err := g.Commit(t.Context(), write)
				if !errors.Is(got.err, store.ErrOverloaded) || !errors.Is(err, store.ErrOverloaded) {
					t.Errorf("one too many returned %v, %v", got.err, err)
				}
			}
			if stats := g.Stats(); stats.Queued != 10 || stats.Refused != 4 {
				t.Errorf("it is %+v", stats)
			}
			g.pull(t, 1)
			admitted(t, "the plug", plugged)
			allAdmitted(t, answers)
			admitted(t, "one after that", g.submit(t.Context(), t, writes[11]))
			g.expectStored(t, map[store.Name]string{"r/9": value, "r/10": "nothing", "r/11": value})
		})
	}
}

// A write that is larger than all that may wait is taken if it is alone.
func TestGroupTakesOneLargerThanTheBound(t *testing.T) {
	t.Parallel()
	g := newGroupbed(t, groupcommit.Config{QueueBytesMax: 1 << 10})
	value := strings.Repeat("v", 100<<10)
	if _, err := g.Commit(t.Context(), g.put(t, "r", 1, value)); err != nil {
		t.Error(err)
	}
	g.expectStored(t, map[store.Name]string{"r": value})
}

func TestGroupConfig(t *testing.T) {
	t.Parallel()
	b := enginetest.OpenStore(t, postgres.Config{DatabaseURL: "host=/nowhere"})
	for flag, config := range map[string]groupcommit.Config{
		"--write-batches-max": {BatchesMax: 2}, "--write-queue-max": {QueueMax: -1},
		"--write-queue-bytes-max": {QueueBytesMax: 1023},
	} {
		_, err := groupcommit.New(b, config)
		if !errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), flag) {
			t.Errorf("%+v returned %v", config, err)
		}
		if _, err := engine.New(b, engine.Config{Group: config}); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("%+v of an engine returned %v", config, err)
		}
	}
}

// Close refuses what waits and what comes, waits for what is in flight, and leaves no goroutine.
func TestGroupCloses(t *testing.T) {
	g := newGroupbed(t, narrow)
	before := goleak.IgnoreCurrent()
	group := newGroup(t, g.Store, narrow)
	g.Group = group
	if _, err := g.Commit(t.Context(), g.put(t, "r", 1, "first")); err != nil { // its worker is idle now
		t.Fatal(err)
	}
	plugged := g.submitPlug(t, "plug")
	queued := []<-chan reply{
		g.submit(t.Context(), t, g.put(t, "q", 1, "x")), g.submit(t.Context(), t, g.put(t, "plug", 2, "x")),
	}
	var closed atomic.Bool
	ended := make(chan struct{})
	go func() {
		group.Close()
		closed.Store(true)
		close(ended)
	}()
	for i, answer := range queued {
		unavailable(t, fmt.Sprint("queued ", i), answer, store.OutcomeNotApplied)
	}
	unavailable(t, "what comes", g.submit(t.Context(), t, g.put(t, "q", 1, "x")), store.OutcomeNotApplied)
	_, err := g.Commit(t.Context(), g.put(t, "q", 1, "x"))
	if err := enginetest.Unavailable(err, store.OutcomeNotApplied); err != nil {
		t.Errorf("what comes: %v", err)
	}
	noVerdict(t, "the plug", plugged)
	if closed.Load() {
		t.Error("it has not waited for the batch in flight")
	}
	g.pull(t, 1)
	admitted(t, "the plug", plugged)
	<-ended
	group.Close()
	g.expectStored(t, map[store.Name]string{"r": "first", "plug": plug, "q": "nothing"})
	g.Store.Close()
	g.SQL.Close()
	if err := await.Nil(func() error { return goleak.Find(before) }); err != nil {
		t.Error(err)
	}
}
