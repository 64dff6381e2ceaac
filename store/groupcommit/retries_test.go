package groupcommit_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/internal/test/testenv/enginetest"
	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/groupcommit"
	"github.com/fencegate/fencegate/store/postgres"
)

// expectCounts compares counts by reason; those that are not named are to be 0.
func expectCounts(t *testing.T, what string, got, want map[store.Reason]uint64) {
	t.Helper()
	all := map[store.Reason]uint64{}
	for reason := range got {
		all[reason] = want[reason]
	}
	if !maps.Equal(got, all) {
		t.Errorf("%s are %v, want %v", what, got, want)
	}
}

// What the database rolls back is tried again by a Group, up to a bound, and each time is counted by its reason.
func TestRetriesAreCounted(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		state    string
		times    int // that it is rolled back
		reason   store.Reason
		failures uint64
		retries  uint64
		fails    bool // that it failed
	}{
		{"40P01", 3, store.ReasonDeadlock, 3, 3, false},
		{"40001", 4, store.ReasonSerialization, 4, 4, false},
		{"40P01", 100, store.ReasonDeadlock, 6, 5, true},
		{"57014", 1, store.ReasonTimeout, 1, 0, true},
		{"53100", 1, store.ReasonDiskFull, 1, 0, true},
		{"53300", 1, store.ReasonConnectionsExhausted, 1, 0, true},
		{"25006", 1, store.ReasonReadOnly, 1, 0, true},
		{"42P01", 1, store.ReasonNotMigrated, 1, 0, true},
		{"22012", 1, store.ReasonOther, 1, 0, true},
	} {
		t.Run(fmt.Sprint(c.state, " ", c.times), func(t *testing.T) {
			t.Parallel()
			g := newGroupbed(t, narrow)
			write := g.put(t, "r", 1, "x")
			g.rollBack(t, c.state, c.times)
			_, err := g.Commit(await.Context(t), write)
			if (err != nil) != c.fails {
				t.Errorf("it returned %v", err)
			}
			expectCounts(t, "failures", g.Failures(), map[store.Reason]uint64{c.reason: c.failures})
			expectCounts(t, "retries", g.Retries(), map[store.Reason]uint64{c.reason: c.retries})
		})
	}
}

// rollBack has the database undo the next writes, so many times.
func (g *groupbed) rollBack(t *testing.T, state string, times int) {
	t.Helper()
	g.Exec(t, fmt.Sprintf(`create function public.roll_back() returns trigger language plpgsql as $$
		begin
			if nextval('public.tries') <= %d then
				raise 'as if it were so' using errcode = '%s';
			end if;
			return new;
		end $$`, times, state))
	g.Exec(t, "create trigger roll_back before insert or update on fence.records for each row execute function "+
		"public.roll_back()")
}

// A write whose fence another session has locked returns to its queue, and each such write is counted.
func TestBusyWritesAreCounted(t *testing.T) {
	t.Parallel()
	g := newGroupbed(t, narrow)
	write := g.put(t, "r", 1, "x")
	_, unlock := g.LockedBy(t, "select from fence.fences where resource = 'r' for update")
	answer := g.submit(t.Context(), t, write)
	await.True(t, "it waits for the fence", func() bool { return g.Stats().InFlight.LockWait == 1 })
	unlock()
	admitted(t, "it", answer)
	if stats := g.Stats(); g.Retries()[store.ReasonBusy] != stats.Busy || stats.Busy != 1 {
		t.Errorf("it went back %d times, and %v are counted", stats.Busy, g.Retries())
	}
	await.True(t, "the batch has ended", func() bool { return g.Stats().InFlight == groupcommit.Lanes[int64]{} })
	stats := g.Stats()
	if stats.Commits.LockWait.Count != 1 || stats.Commits.LockWait.Sum <= 0 || stats.Commits.Large.Count != 0 {
		t.Errorf("the commits are %+v", stats.Commits)
	}
}

// The record of rejections is kept for the next time where there is no database, and that is a retry.
func TestLostConnectionsAreCounted(t *testing.T) {
	t.Parallel()
	nowhere := enginetest.OpenStore(t, postgres.Config{DatabaseURL: "postgres://127.0.0.1:1/none?connect_timeout=2"})
	recorder := postgres.NewRecorder(nowhere)
	recorder.Record(&store.RejectedError{Verdict: store.VerdictTokenStale, Resource: "r", Token: 1}, "http", "", "")
	ended, end := context.WithCancel(t.Context())
	end()
	failed := error(nil)
	recorder.Run(ended, func(err error) { failed = err })
	if failed == nil {
		t.Fatal("it was recorded, without a database")
	}
	expectCounts(t, "failures", nowhere.Failures(), map[store.Reason]uint64{store.ReasonConnection: 1})
	expectCounts(t, "retries", nowhere.Retries(), map[store.Reason]uint64{store.ReasonConnection: 1})
}

// A caller that leaves is counted as a timeout, not as a lost connection.
func TestTimeoutsAreCounted(t *testing.T) {
	t.Parallel()
	g := newGroupbed(t, narrow)
	write := g.put(t, "r", 1, plug)
	g.hold(t, 1)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := g.Store.Write(ctx, []store.Write{write})
		done <- err
	}()
	g.awaitPlugged(t)
	cancel()
	if err := <-done; !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("it returned %v", err)
	}
	g.pull(t, 1)
	expectCounts(t, "failures", g.Failures(), map[store.Reason]uint64{store.ReasonTimeout: 1})
}

// Sweeps are timed; one that fails is not taken for the last.
func TestSweepsAreTimed(t *testing.T) {
	t.Parallel()
	b := enginetest.New(t)
	sweeper := enginetest.NewSweeper(t, b.Store, postgres.SweeperConfig{})
	if stats := sweeper.Stats(); !stats.Last.IsZero() || stats.Took.Count != 0 {
		t.Errorf("before the first sweep: %+v", stats)
	}
	begun := time.Now().Truncate(time.Microsecond)
	if _, err := sweeper.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	first := sweeper.Stats()
	if first.Took.Count != 1 || first.Took.Sum <= 0 || first.Last.Before(begun) {
		t.Errorf("after the first sweep: %+v", first)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if _, err := sweeper.Sweep(ended); err == nil {
		t.Error("a sweep without time succeeded")
	}
	if stats := sweeper.Stats(); stats != first {
		t.Errorf("after one that failed: %+v", stats)
	}
}

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

// In a batch of two hundred, each write gets what it would have got alone: the neighbours of what fails in the
// database, and of what the rule rejects, are applied; and behind it on the same resource, too.
func TestGroupNeighbours(t *testing.T) {
	t.Parallel()
	g := newGroupbed(t, narrow)
	var writes []store.Write
	for i := range 196 {
		writes = append(writes, g.put(t, enginetest.Numbered("r", i), 1, "fine"))
	}
	bad := g.put(t, "r/7", 2, poison)
	bad.Key = "other" // what the next write replaces would not be stored
	behind := g.put(t, "r/7", 3, "behind")
	stale := g.put(t, "r/8", 1, "stale")
	missing := g.put(t, "r/9", 2, "")
	missing.Operation = store.Operation{Kind: store.Delete, Key: "none"}
	writes = append(writes, bad, behind, stale, missing)
	want := map[int]string{
		196: "22000", 198: store.ErrStaleToken.Error(), 199: store.ErrNotFound.Error(),
	}
	invalid := g.put(t, "r/10", 2, "")
	invalid.Kind = "zap"

	plugged := g.submitPlug(t, "plug")
	answers := g.submitAll(t, writes...)
	if got := verdict(t, g.submit(t.Context(), t, invalid)); !errors.Is(got.err, store.ErrInvalid) {
		t.Errorf("what is invalid returned %+v", got)
	}
	g.pull(t, 1)
	admitted(t, "the plug", plugged)
	for i, answer := range answers {
		if want[i] == "" {
			admitted(t, fmt.Sprint("write ", i), answer)
			continue
		}
		got := verdict(t, answer)
		if text := fmt.Sprint(got.err, got.result.Err); !strings.Contains(text, want[i]) ||
			(got.err == nil) == (got.result.Err == nil) {
			t.Errorf("write %d returned %s, want %s", i, text, want[i])
		}
	}
	g.expectStored(t, map[store.Name]string{"r/6": "fine", "r/7": "behind", "r/8": "fine", "r/195": "fine"})
	if stats := g.Stats(); stats.Batches != 2 {
		t.Errorf("it took %+v", stats)
	}
}

// The connection of a batch is ended: nothing is said of what was in it, and what waited behind that is not applied.
// Sent again in its order, each is applied exactly once.
func TestGroupConnectionIsEnded(t *testing.T) {
	t.Parallel()
	g := newGroupbed(t, narrow)
	ctx := context.Background()
	writes := []store.Write{
		g.put(t, "p", 1, plug2), g.put(t, "q", 1, "x"), g.put(t, "r", 1, "first"), g.put(t, "r", 2, "second"),
		g.put(t, "r", 3, "third"),
	}
	plugged := g.submitPlug(t, "plug")
	g.hold(t, 2)
	answers := g.submitAll(t, writes[:4]...)
	g.pull(t, 1)
	admitted(t, "the plug", plugged)
	g.awaitPlugged(t)
	answers = append(answers, g.submit(ctx, t, writes[4]))
	// A plug sleeps again and again: between two sleeps, the query doesn't find it.
	await.True(t, "its connection is ended", func() bool {
		return g.Count(t, "select count(pg_terminate_backend(pid)) "+pluggedSQL) > 0
	})
	for i, outcome := range []store.Outcome{
		store.OutcomeUnknown, store.OutcomeUnknown, store.OutcomeUnknown, store.OutcomeUnknown, store.OutcomeNotApplied,
	} {
		unavailable(t, fmt.Sprint("write ", i), answers[i], outcome)
	}
	g.expectStored(t, map[store.Name]string{"plug": plug, "p": "nothing", "q": "nothing", "r": "nothing"})
	g.pull(t, 2)
	for i, write := range writes {
		if result := admitted(t, fmt.Sprintf("write %d again", i), g.submit(ctx, t, write)); result.Replayed {
			t.Errorf("write %d was applied before", i)
		}
	}
	g.expectStored(t, map[store.Name]string{"p": plug2, "q": "x", "r": "third"})
}
