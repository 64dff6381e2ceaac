package postgres_test

import (
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/postgres"
)

// recordGroupsSQL records one rejection of each of $1 groups.
const recordGroupsSQL = `select count(*) from fence.record_rejections(
	(select array_agg('jobs/' || n) from generate_series(1, $1) n), array_fill('k'::text, array[$1]),
		array_fill('token_unknown'::text, array[$1]),
	array_fill(''::text, array[$1]), array_fill('http'::text, array[$1]), array_fill(''::text, array[$1]),
	array_fill(7::bigint, array[$1]), array_fill(null::bigint, array[$1]), array_fill(0::bigint, array[$1]),
		array_fill(0::bigint, array[$1]),
	array_fill(0::bigint, array[$1]), array_fill(1::bigint, array[$1]), array_fill(clock_timestamp(), array[$1]), array_fill(clock_timestamp(), array[$1]))`

func nextChanges(t *testing.T, follower store.RejectionFollower) store.RejectionChanges {
	t.Helper()
	changes, err := follower.Next(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return changes
}

func expectChanges(t *testing.T, changes store.RejectionChanges, changed int, missed bool) {
	t.Helper()
	if len(changes.Changed) != changed || changes.Missed != missed || time.Since(changes.At).Abs() > time.Minute {
		t.Errorf("at %s %d have changed, missed %v; want %d, %v", changes.At, len(changes.Changed), changes.Missed, changed,
			missed)
	}
}

// TestRejectionFollower checks that a follower begins with its first reading and returns each change once, also one
// that becomes visible late.
func TestRejectionFollower(t *testing.T) {
	t.Parallel()
	b := newTestbed(t)
	b.Exec(t, recordGroupsSQL, 5)
	late := b.begin(t)
	if _, err := late.Exec(t.Context(), recordGroupsSQL, 2); err != nil {
		t.Fatal(err)
	}
	follower := b.FollowRejections()
	expectChanges(t, nextChanges(t, follower), 0, false)
	expectChanges(t, nextChanges(t, follower), 0, false)
	b.Exec(t, "update fence.rejections set changed_at = clock_timestamp(), count = count + 1 where resource in "+
		"('jobs/3', 'jobs/4')")
	changes := nextChanges(t, follower)
	expectChanges(t, changes, 2, false)
	if first, second := changes.Changed[0], changes.Changed[1]; first.Count != 2 ||
		second.ChangedAt.Before(first.ChangedAt) {
		t.Errorf("the changes are %+v, want two groups in the order of their changes", changes.Changed)
	}
	expectChanges(t, nextChanges(t, follower), 0, false)
	if err := late.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	changes = nextChanges(t, follower)
	expectChanges(t, changes, 2, false)
	if got := changes.Changed; got[0].Resource != "jobs/1" || got[1].Resource != "jobs/2" || got[0].Count != 2 {
		t.Errorf("the late changes are %+v, want jobs/1 and jobs/2", got)
	}
	expectChanges(t, nextChanges(t, follower), 0, false)
}

// TestRejectionFollowerInAStorm checks that a follower returns changes up to a bound, and beyond it only that changes
// were missed, until there are fewer.
func TestRejectionFollowerInAStorm(t *testing.T) {
	t.Parallel()
	b := newTestbed(t)
	follower := b.FollowRejections().(*postgres.Follower)
	begun := nextChanges(t, follower)
	b.Exec(t, recordGroupsSQL, store.RejectionsMissedMax)
	expectChanges(t, nextChanges(t, follower), store.RejectionsMissedMax, false)
	for range 3 {
		b.Exec(t, recordGroupsSQL, 5*store.RejectionsMissedMax)
		changes := nextChanges(t, follower)
		expectChanges(t, changes, 0, true)
		if changes.Since.After(begun.At) || follower.Remembered() > store.RejectionsMissedMax {
			t.Errorf("missed is all since %s; %d groups are remembered", changes.Since, follower.Remembered())
		}
	}
	b.Exec(t, "update fence.rejections set changed_at = changed_at - interval '1 minute'") // that minute passes
	b.Exec(t, recordGroupsSQL, 3)
	expectChanges(t, nextChanges(t, follower), 3, false)
	follower.Ahead(time.Hour) // and that hour, but only for the follower
	b.Exec(t, recordGroupsSQL, 2)
	expectChanges(t, nextChanges(t, follower), 0, true)
	b.Exec(t, recordGroupsSQL, 1)
	expectChanges(t, nextChanges(t, follower), 1, false)
}

// TestRejectionsSince checks which rejections changed since a time, and when the answer is that changes were missed.
func TestRejectionsSince(t *testing.T) {
	t.Parallel()
	b := newTestbed(t)
	b.Exec(t, recordGroupsSQL, 10)
	b.Exec(t, "update fence.rejections set changed_at = clock_timestamp() - interval '30 minutes' where resource = "+
		"'jobs/1'")
	now := time.Now()
	for _, c := range []struct {
		filter  store.RejectionFilter
		stopped time.Time
		changed int
		missed  bool
	}{
		{store.RejectionFilter{}, now, 9, false},
		{store.RejectionFilter{Resource: "jobs/1"}, now, 0, false},
		{store.RejectionFilter{Resource: "jobs/1"}, now.Add(-31 * time.Minute), 1, false},
		{store.RejectionFilter{Prefix: "jobs/1"}, now.Add(-31 * time.Minute), 2, false},
		{store.RejectionFilter{}, now.Add(-store.RejectionsResumable - time.Minute), 0, true},
		{store.RejectionFilter{}, now.Add(time.Minute), 0, true},
		{store.RejectionFilter{}, time.Unix(0, 0), 0, true},
	} {
		changes, err := b.RejectionsSince(t.Context(), c.filter, c.stopped)
		if err != nil {
			t.Fatal(err)
		}
		expectChanges(t, changes, c.changed, c.missed)
	}
	b.Exec(t, recordGroupsSQL, store.RejectionsMissedMax+1)
	changes, err := b.RejectionsSince(t.Context(), store.RejectionFilter{}, now)
	if err != nil || len(changes.Changed) != 0 || !changes.Missed {
		t.Errorf("of too many changes the answer has %d (%v), missed %v, want none and missed", len(changes.Changed), err,
			changes.Missed)
	}
	if _, err := b.RejectionsSince(t.Context(), store.RejectionFilter{Verdict: "admitted"}, now); !errors.Is(err,
		store.ErrInvalid) {
		t.Errorf("a bad filter: %v, want ErrInvalid", err)
	}
}

// TestRecordingIsVisibleSoon checks that a transaction that records rejections ends within 5 s, and does not wait for
// standbys: a change becomes visible soon after its changed_at.
func TestRecordingIsVisibleSoon(t *testing.T) {
	t.Parallel()
	b := newTestbed(t)
	b.Exec(t, recordGroupsSQL, 2)
	b.Exec(t, recordGroupsSQL, 2)
	first := b.begin(t)
	var commit string
	_, err := first.Exec(t.Context(), "savepoint recording")
	if err == nil {
		_, err = first.Exec(t.Context(), recordGroupsSQL, 2)
	}
	if err == nil {
		err = first.QueryRow(t.Context(), "show synchronous_commit").Scan(&commit)
	}
	if err == nil { // a locked group would be skipped; a locked table is waited for
		_, err = first.Exec(t.Context(), "rollback to recording; lock table fence.rejections in share mode")
	}
	if err != nil || commit != "local" {
		t.Errorf("the commit is %s (%v)", commit, err)
	}
	second := make(chan error, 1)
	go func() {
		second <- pgx.BeginFunc(t.Context(), b.SQL, func(tx pgx.Tx) error {
			_, err := tx.Exec(t.Context(), recordGroupsSQL, 2)
			return err
		})
	}()
	if err := b.AwaitBlocked(t.Context(), second); err != nil {
		t.Fatal(err)
	}
	b.Exec(t, "select pg_sleep(5.1)") // what the test is about
	if err := first.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	var refused *pgconn.PgError
	if err := <-second; !errors.As(err, &refused) || refused.Code != "57014" {
		t.Errorf("recording that took longer than 5 s returned %v, want query_canceled", err)
	}
	for _, r := range rejections(t, b, store.RejectionQuery{}) {
		if r.Count != 2 {
			t.Errorf("recorded is %+v", r)
		}
	}
}
