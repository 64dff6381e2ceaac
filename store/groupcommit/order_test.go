package groupcommit_test

import (
	"context"
	"sync"
	"testing"

	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/internal/test/testenv/enginetest"
	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/groupcommit"
)

// A resource with ten thousand writes waiting does not hold up another: the other's write goes into one of the next
// batches.
func TestGroupIsFair(t *testing.T) {
	t.Parallel()
	const hot = 10_000
	g := newGroupbed(t, groupcommit.Config{BatchesMax: narrow.BatchesMax, QueueMax: 20 * hot})
	g.submitPlug(t, "plug")
	first := g.put(t, "hot", 1, "")
	var answered sync.WaitGroup
	answered.Add(hot)
	for i := range hot {
		write := first
		write.Sequence = new(int64(i + 1))
		g.Submit(context.Background(), write, func(result store.Result, err error) {
			defer answered.Done()
			if err != nil || result.Err != nil {
				t.Errorf("write %d: %v (%v)", i, result.Err, err)
			}
		})
	}
	before := make(chan uint64, 1)
	g.Submit(context.Background(), g.put(t, "other", 1, "x"), func(store.Result, error) { before <- g.Stats().Writes })
	g.pull(t, 1)
	const most = 1 + 2*32 // the plug, and what a batch takes of one resource
	if writes := <-before; writes > most {
		t.Errorf("the other was decided after %d writes, want at most %d", writes, most)
	}
	answered.Wait()
	if last, err := g.Fence(await.Context(t), "hot"); err != nil || last.LastSequence != hot {
		t.Errorf("the fence is %+v (%v)", last, err)
	}
}

// A write goes at once where nothing is in its way, and batches are within their bounds.
func TestGroupBatches(t *testing.T) {
	t.Parallel()
	const writes = 1000
	g := newGroupbed(t, narrow)
	if _, err := g.Commit(t.Context(), g.put(t, "single", 1, "x")); err != nil {
		t.Fatal(err)
	}
	if stats := g.Stats(); stats.Batches != 1 || stats.BatchSizes[0] != 1 {
		t.Errorf("one write is %+v", stats)
	}
	var writesOfAll []store.Write
	for i := range writes { // five to each of two hundred: the last resource of a batch does not fit with all of its five
		writesOfAll = append(writesOfAll, g.put(t, enginetest.Numbered("r", i/5), int64(i%5+1), "x"))
	}
	plugged := g.submitPlug(t, "plug")
	answers := g.submitAll(t, writesOfAll...)
	if stats := g.Stats(); stats.Queued != writes || stats.InFlight.Quick != 1 {
		t.Errorf("behind a plug it is %+v", stats)
	}
	g.pull(t, 1)
	admitted(t, "the plug", plugged)
	allAdmitted(t, answers)
	// 1000 = 256 + 256 + 256 + 232, after the single one and the plug.
	if stats := g.Stats(); stats.Batches != 6 || stats.BatchSizes != [9]uint64{2, 2, 2, 2, 2, 2, 2, 2, 6} {
		t.Errorf("afterwards it is %+v", stats)
	}
}
