package groupcommit_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
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
