package store_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/fencegate/fencegate/store"
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

// TestRetriesAreCounted checks that the group commit retries writes that the database rolls back, up to a bound, and
// that failures and retries are counted by reason.
func TestRetriesAreCounted(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		state    string
		times    int // that it is rolled back
		reason   store.Reason
		failures uint64
		retries  uint64
		fails    bool
	}{
		{"40P01", 3, store.ReasonDeadlock, 3, 3, false},
		{"40001", 4, store.ReasonSerialization, 4, 4, false},
		{"40P01", 100, store.ReasonDeadlock, 6, 5, true},
		{"57014", 1, store.ReasonTimeout, 1, 0, true},
		{"53100", 1, store.ReasonOther, 1, 0, true},
		{"53300", 1, store.ReasonConnection, 1, 0, true},
		{"25006", 1, store.ReasonReadOnly, 1, 0, true},
		{"42P01", 1, store.ReasonNotMigrated, 1, 0, true},
		{"22012", 1, store.ReasonOther, 1, 0, true},
	} {
		t.Run(fmt.Sprint(c.state, " ", c.times), func(t *testing.T) {
			t.Parallel()
			g := newGroupbed(t, narrow)
			write := g.put(t, "r", 1, "x")
			g.rollBack(t, c.state, c.times)
			_, err := g.Commit(patient(t), write)
			if (err != nil) != c.fails {
				t.Errorf("the write returned %v, want an error: %v", err, c.fails)
			}
			expectCounts(t, "failures", g.Failures(), map[store.Reason]uint64{c.reason: c.failures})
			expectCounts(t, "retries", g.Retries(), map[store.Reason]uint64{c.reason: c.retries})
		})
	}
}

// rollBack has the database undo the next writes, so many times.
func (g *groupbed) rollBack(t *testing.T, state string, times int) {
	t.Helper()
	g.exec(t, fmt.Sprintf(`create function public.roll_back() returns trigger language plpgsql as $$
		begin
			if nextval('public.tries') <= %d then
				raise 'as if it were so' using errcode = '%s';
			end if;
			return new;
		end $$`, times, state))
	g.exec(t, "create trigger roll_back before insert or update on fence.records for each row execute function public.roll_back()")
}

// TestRetriesOfTransactionsAreCounted checks that a transaction that the database rolls back is sent again and counted.
func TestRetriesOfTransactionsAreCounted(t *testing.T) {
	t.Parallel()
	g := newGroupbed(t, narrow)
	write := g.put(t, "r", 1, "x")
	g.rollBack(t, "40P01", 1)
	transaction := store.Transaction{
		Claims:     []store.WriteToken{write.WriteToken},
		Operations: []store.ResourceOperation{{Resource: write.Resource, Operation: write.Operation}},
	}
	if _, err := g.Transact(patient(t), transaction); err != nil {
		t.Error(err)
	}
	expectCounts(t, "failures", g.Failures(), map[store.Reason]uint64{store.ReasonDeadlock: 1})
	expectCounts(t, "retries", g.Retries(), map[store.Reason]uint64{store.ReasonDeadlock: 1})
}

// TestBusyWritesAreCounted checks that a write whose fence is locked returns to its queue and is counted.
func TestBusyWritesAreCounted(t *testing.T) {
	t.Parallel()
	g := newGroupbed(t, narrow)
	write := g.put(t, "r", 1, "x")
	tx, err := g.sql.Begin(t.Context())
	if err == nil {
		_, err = tx.Exec(t.Context(), "select from fence.fences where resource = 'r' for update")
	}
	if err != nil {
		t.Fatal(err)
	}
	answer := g.submit(t.Context(), t, write)
	await(t, "the write waits for its fence", func() bool { return g.Stats().InFlight.Patient == 1 })
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	admitted(t, "it", answer)
	if stats := g.Stats(); g.Retries()[store.ReasonBusy] != stats.Busy || stats.Busy != 1 {
		t.Errorf("the write went back %d times, counted are %v, want one", stats.Busy, g.Retries())
	}
	await(t, "the batch of the write has ended", func() bool { return g.Stats().InFlight == store.GroupLanes{} })
	stats := g.Stats()
	if stats.Commits.Patient.Count != 1 || stats.Commits.Patient.Sum <= 0 || stats.Commits.Large.Count != 0 {
		t.Errorf("the commits are %+v", stats.Commits)
	}
}

// TestLostConnectionsAreCounted checks that rejections that can't be recorded without a database are kept, and counted
// as a retry.
func TestLostConnectionsAreCounted(t *testing.T) {
	t.Parallel()
	nowhere := openStore(t, store.Config{DatabaseURL: "postgres://127.0.0.1:1/none?connect_timeout=2"})
	recorder := store.NewRecorder(nowhere)
	recorder.Record(&store.RejectedError{Verdict: store.VerdictTokenStale, Resource: "r", Token: 1}, "http", "")
	ended, end := context.WithCancel(t.Context())
	end()
	failed := error(nil)
	recorder.Run(ended, func(err error) { failed = err })
	if failed == nil {
		t.Fatal("the recorder reported no error without a database")
	}
	expectCounts(t, "failures", nowhere.Failures(), map[store.Reason]uint64{store.ReasonConnection: 1})
	expectCounts(t, "retries", nowhere.Retries(), map[store.Reason]uint64{store.ReasonConnection: 1})
}

// TestTimeoutsAreCounted checks that a write whose caller gives up is counted as a timeout, not as a lost connection.
func TestTimeoutsAreCounted(t *testing.T) {
	t.Parallel()
	g := newGroupbed(t, narrow)
	write := g.put(t, "r", 1, plug)
	g.hold(t, 1)
	ctx, giveUp := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := g.Store.Write(ctx, []store.Write{write})
		done <- err
	}()
	g.awaitPlugged(t)
	giveUp()
	if err := <-done; !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("the write returned %v, want ErrUnavailable", err)
	}
	g.pull(t, 1)
	expectCounts(t, "failures", g.Failures(), map[store.Reason]uint64{store.ReasonTimeout: 1})
}

// TestSweepsAreTimed checks that sweeps are timed, and that a sweep that fails does not count as the last one.
func TestSweepsAreTimed(t *testing.T) {
	t.Parallel()
	b := newTestbed(t)
	sweeper := newSweeper(t, b.Store, store.SweeperConfig{})
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
