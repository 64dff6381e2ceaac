package groupcommit_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/internal/test/testenv/enginetest"
	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/groupcommit"
)

// A fence that another session has locked delays only the writes to it, and they keep their order.
func TestGroupAndLockedFence(t *testing.T) {
	t.Parallel()
	g := newGroupbed(t, narrow)
	ctx := context.Background()
	locked := []store.Write{g.put(t, "locked", 1, "1"), g.put(t, "locked", 2, "2"), g.put(t, "locked", 3, "3"),
		g.put(t, "locked", 4, "4")}
	var others []store.Write
	for i := range 50 {
		others = append(others, g.put(t, enginetest.Numbered("r", i), 1, "x"))
	}
	_, unlock := g.LockedBy(t, "select from fence.fences where resource = 'locked' for update")
	waiting := g.submitAll(t, locked[:2]...)
	for i, write := range others {
		admitted(t, fmt.Sprint("other ", i), g.submit(ctx, t, write))
	}
	await.True(t, "the writes to what is locked wait in a lane of their own",
		func() bool { return g.Stats().InFlight.LockWait == 1 })
	waiting = append(waiting, g.submitAll(t, locked[2:]...)...)
	for i := range others {
		others[i].Sequence = new(int64(2))
		admitted(t, fmt.Sprint("other ", i), g.submit(ctx, t, others[i]))
	}
	noVerdicts(t, waiting)
	if stats := g.Stats(); stats.Busy == 0 {
		t.Errorf("it is %+v", stats)
	}
	unlock()
	admittedInOrder(t, waiting)
}

// Large values, of which no more are stored at a time than their lane lets through, hold up no small ones; nor do they
// when a small one stands behind them in the same resource, which waits for them.
func TestGroupAndLargeValues(t *testing.T) {
	t.Parallel()
	g := newGroupbed(t, narrow)
	ctx := context.Background()
	large := plug + strings.Repeat("v", 200<<10)
	var writes []store.Write
	for i := range 20 {
		writes = append(writes, g.put(t, enginetest.Numbered("large", i), 1, large))
	}
	behind, before, then := g.put(t, "large/0", 2, "small"), g.put(t, "mixed", 1, "small"), g.put(t, "mixed", 2, large)
	g.hold(t, 1)
	waiting := g.submitAll(t, append(writes, behind)...)
	g.awaitPlugged(t)
	small, mixed := g.submit(ctx, t, before), g.submit(ctx, t, then)
	admitted(t, "the small one before a large one", small)
	for i := range 50 {
		admitted(t, fmt.Sprint("small ", i), g.submit(ctx, t, g.put(t, enginetest.Numbered("small", i), 1, "x")))
	}
	noVerdict(t, "the large one behind a small one", mixed)
	noVerdicts(t, waiting)
	if stats := g.Stats(); stats.InFlight.Large != 1 {
		t.Errorf("it is %+v", stats)
	}
	g.pull(t, 1)
	admitted(t, "the large one behind a small one", mixed)
	allAdmitted(t, waiting)
	g.expectStored(t, map[store.Name]string{"large/0": "small", "large/19": large, "mixed": large})
}

// A batch that waited too long for something else that another session has locked is put off, each resource for itself.
// Even then one holder's writes keep their order, and the others are applied.
func TestGroupAndOtherLocks(t *testing.T) {
	t.Parallel()
	g := newGroupbed(t, narrow)
	writes := []store.Write{
		g.put(t, "a", 1, "x"), g.put(t, "b", 1, "1"), g.put(t, "b", 2, clog), g.put(t, "b", 3, "3"), g.put(t, "c", 1, "x"),
	}
	writes[2].Key = "another" // of a key that is put several times, only the last is stored
	plugged := g.submitPlug(t, "plug")
	answers := g.submitAll(t, writes...)
	g.hold(t, 2)
	g.pull(t, 1)
	admitted(t, "the plug", plugged)
	admitted(t, "the first", answers[0])
	admitted(t, "the last", answers[4])
	noVerdicts(t, answers[1:4])
	g.pull(t, 2)
	admittedInOrder(t, answers[1:4])
	g.expectStored(t, map[store.Name]string{"a": "x", "b": "3", "c": "x"})
}

// Where a batch is split and a write is put off, the writes behind it on its resource are put off, too.
func TestGroupPutsOffWhatIsBehind(t *testing.T) {
	t.Parallel()
	g := newGroupbed(t, narrow)
	writes := []store.Write{g.put(t, "a", 1, poison), g.put(t, "b", 1, clog), g.put(t, "b", 2, "2"), g.put(t, "b", 3, "3")}
	writes[1].Key = "another"
	plugged := g.submitPlug(t, "plug")
	answers := g.submitAll(t, writes...)
	g.hold(t, 2)
	g.pull(t, 1)
	admitted(t, "the plug", plugged)
	if got := verdict(t, answers[0]); got.err == nil {
		t.Errorf("what can't be stored returned %v", got.result)
	}
	await.True(t, "the others wait by themselves", func() bool { return g.Stats().InFlight.LockWait == 1 })
	noVerdicts(t, answers[1:])
	g.pull(t, 2)
	admittedInOrder(t, answers[1:])
}

// A write that comes while a batch is overdue does not wait for its end, though nothing comes after it.
func TestGroupPassesWhatIsOverdue(t *testing.T) {
	t.Parallel()
	g := newGroupbed(t, groupcommit.Config{BatchesMax: 6})
	write := g.put(t, "other", 1, "x")
	// A batch that took 100 ms is usual, so the next is not overdue yet when the other write comes.
	g.hold(t, 2)
	slow := g.submit(t.Context(), t, g.put(t, "slow", 1, plug2))
	g.awaitPlugged(t)
	time.Sleep(100 * time.Millisecond)
	g.pull(t, 2)
	admitted(t, "the slow one", slow)
	plugged := g.submitPlug(t, "plug")
	admitted(t, "the other", g.submit(t.Context(), t, write))
	noVerdict(t, "the plug", plugged)
	g.pull(t, 1)
	admitted(t, "the plug", plugged)
}

// No more of the queue may wait for one resource than its part, and no more for all fences that other sessions have
// locked than theirs.
func TestGroupBoundsWhatIsLocked(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	large := strings.Repeat("v", 1<<10)
	for name, bound := range map[string]struct {
		config     groupcommit.Config
		value      string
		ofResource int
	}{
		"writes": {groupcommit.Config{QueueMax: 4800}, "x", 300},
		"bytes":  {groupcommit.Config{QueueBytesMax: 16 * 8 << 10}, large, 7}, // with their names
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGroupbed(t, bound.config)
			free := g.put(t, "free", 1, "x")
			for i := range 6 {
				g.put(t, enginetest.Numbered("locked", i), 1, "")
			}
			_, unlock := g.LockedBy(t, "select from fence.fences where resource ^@ 'locked/' for update")
			var waiting []<-chan reply
			submit := func(i int, sequence int64) <-chan reply {
				return g.submit(ctx, t, g.put(t, enginetest.Numbered("locked", i), sequence, bound.value))
			}
			for i := range 6 { // each is put off once: then it is known that its fence is locked
				waiting = append(waiting, submit(i, 1))
				await.True(t, "it is known to be locked", func() bool { return g.Stats().Busy >= uint64(i+1) })
			}
			taken, refused := 0, error(nil)
			for i := range 6 {
				for sequence := int64(2); ; sequence++ {
					answer := submit(i, sequence)
					select {
					case got := <-answer: // before Submit has returned
						refused = got.err
					default:
						waiting = append(waiting, answer)
						taken++
						continue
					}
					break
				}
				locked := string(enginetest.Numbered("locked", i))
				if !errors.Is(refused, store.ErrOverloaded) || !strings.Contains(refused.Error(), locked) ||
					strings.Contains(refused.Error(), "database") {
					t.Errorf("one too many to %s returned %v", locked, refused)
				}
			}
			if most := 4*bound.ofResource + 6; taken < 3*bound.ofResource || taken > most {
				t.Errorf("%d wait for what is locked, want at most %d", taken, most)
			}
			admitted(t, "the free one", g.submit(ctx, t, free))
			unlock()
			allAdmitted(t, waiting)
			if stats := g.Stats(); stats.Queued != 0 || stats.QueuedBytes != 0 {
				t.Errorf("in the end it is %+v", stats)
			}
		})
	}
}
