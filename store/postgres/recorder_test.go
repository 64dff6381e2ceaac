package postgres_test

import (
	"context"
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/postgres"
)

// flush writes what a Recorder has recorded and returns the errors that it reported.
func flush(recorder *postgres.Recorder) error {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	var reported error
	recorder.Run(ended, func(err error) { reported = errors.Join(reported, err) })
	return reported
}

// flushAll is a flush that must work.
func flushAll(t *testing.T, recorder *postgres.Recorder) {
	t.Helper()
	if err := flush(recorder); err != nil {
		t.Fatal(err)
	}
}

func rejections(t *testing.T, b *testbed, query store.RejectionQuery) []store.Rejection {
	t.Helper()
	if query.Limit == 0 {
		query.Limit = store.PageMax
	}
	found, err := b.Rejections(t.Context(), query)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// rejectedBy returns the rejection of a write.
func rejectedBy(t *testing.T, s *fixture, spec writeSpec) *store.RejectedError {
	t.Helper()
	result, err := bySet(t.Context(), s.Store, spec(s))
	var rejected *store.RejectedError
	if err != nil || !errors.As(result.Err, &rejected) {
		t.Fatalf("the answer is %+v (%v), want a rejection", result, err)
	}
	return rejected
}

// TestRecorderGroupsRejections checks that a zombie's rejections are one group, within a flush and across flushes.
func TestRecorderGroupsRejections(t *testing.T) {
	t.Parallel()
	b := newTestbed(t)
	recorder := postgres.NewRecorder(b.Store)
	zombie := store.RejectedError{
		Verdict: store.VerdictTokenStale, Reason: "superseded", Resource: "jobs/1", Key: "a",
		Token: 33, Sequence: new(int64(1)), GrantedToken: 34, LastToken: 33, LastSequence: 1,
	}
	before := time.Now()
	recorder.Record(&zombie, "http", "192.0.2.1", "")
	zombie.Key, zombie.Sequence = "b", new(int64(2))
	recorder.Record(&zombie, "http", "192.0.2.1", "")
	flushAll(t, recorder)
	between := time.Now()
	zombie.Key, zombie.Sequence, zombie.GrantedToken, zombie.LastToken, zombie.LastSequence = "c", nil, 35, 35, 7
	recorder.Record(&zombie, "http", "192.0.2.1", "")
	flushAll(t, recorder)
	found := rejections(t, b, store.RejectionQuery{})
	if len(found) != 1 {
		t.Fatalf("there are %d groups, want 1: %+v", len(found), found)
	}
	got := found[0]
	if got.FirstAt.Before(before.Truncate(time.Microsecond)) || got.FirstAt.After(between) ||
		got.LastAt.Before(between.Truncate(time.Microsecond)) || got.LastAt.After(time.Now()) {
		t.Errorf("the group lasted from %s to %s; it began between %s and %s", got.FirstAt, got.LastAt, before, between)
	}
	want := store.Rejection{
		ID: got.ID, Resource: "jobs/1", Key: "c", Verdict: store.VerdictTokenStale, Reason: "superseded", Source: "http",
		Address: "192.0.2.1",
		Token:   33, GrantedToken: 35, LastToken: 35, LastSequence: 7, Count: 3, FirstAt: got.FirstAt, LastAt: got.LastAt,
		ChangedAt: got.ChangedAt,
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("the group is\n%+v, want\n%+v", got, want)
	}
}

// TestRecorderSeparatesGroups checks that rejections that differ in any field of the group's key are groups of their
// own.
func TestRecorderSeparatesGroups(t *testing.T) {
	t.Parallel()
	b := newTestbed(t)
	recorder := postgres.NewRecorder(b.Store)
	base := store.RejectedError{Verdict: store.VerdictTokenStale, Reason: "superseded", Resource: "r", Token: 33}
	type change func(rejected *store.RejectedError, source, address *string)
	changes := []change{
		func(*store.RejectedError, *string, *string) {},
		func(r *store.RejectedError, _, _ *string) { r.Resource = "q" },
		func(r *store.RejectedError, _, _ *string) { r.Token = 0 },
		func(r *store.RejectedError, _, _ *string) { r.Verdict, r.Reason = store.VerdictLeaseMismatch, "" },
		func(r *store.RejectedError, _, _ *string) { r.Reason = "reused" },
		func(_ *store.RejectedError, source, _ *string) { *source = "sql" },
		func(_ *store.RejectedError, _, address *string) { *address = "192.0.2.2" },
	}
	for range 2 {
		for _, change := range changes {
			rejected, source, address := base, "http", "192.0.2.1"
			change(&rejected, &source, &address)
			recorder.Record(&rejected, source, address, "")
		}
		flushAll(t, recorder)
	}
	found := rejections(t, b, store.RejectionQuery{})
	if len(found) != len(changes) {
		t.Errorf("there are %d groups, want %d: %+v", len(found), len(changes), found)
	}
	for _, group := range found {
		if group.Count != 2 {
			t.Errorf("the count is %d, want 2: %+v", group.Count, group)
		}
	}
}

// TestRecorderLooksUpTheLease checks that the owner, and how late the write was, are recorded while the lease is known.
func TestRecorderLooksUpTheLease(t *testing.T) {
	t.Parallel()
	b := newTestbed(t)
	const ago = `update fence.leases set granted_at = granted_at - interval '1 day', expires_at = clock_timestamp() - interval '1 hour', check_at = '-infinity',
		ended_at = case when ended_at is not null then clock_timestamp() - interval '1 hour' end
		where lock = $1 and fencing_token = $2`
	for name, c := range map[string]struct {
		given, after given // after: between the rejection and its record
		write        writeSpec
		ago, late    bool // the first lease ended an hour ago; the record has how late the write was
		owner        string
	}{
		"released an hour ago": {given{acquire, release}, nil, with(first), true, true, "owner-1"},
		"broken an hour ago":   {given{acquire, breakLock}, nil, with(first), true, true, "owner-1"},
		"expired an hour ago":  {given{acquire, expire}, nil, with(first, otherLeaseID), true, true, "owner-1"},
		"replaced an hour ago": {given{acquire, replace}, nil, with(first), true, true, "owner-1"},
		"released late since":  {given{acquire, expire}, given{release}, with(first, otherLeaseID), true, true, "owner-1"},
		"live":                 {given{acquire}, nil, with(first, expect(7)), false, false, "owner-1"},
		"released since":       {given{acquire}, given{release, endLater}, with(first, expect(7)), false, false, "owner-1"},
		"expired since":        {given{acquire}, given{expireLater}, with(first, expect(7)), false, false, "owner-1"},
		"forgotten":            {given{acquire, replace, forget}, nil, with(first), false, false, ""},
		"never granted":        {given{acquire}, nil, with(beyond), false, false, ""},
		"no token":             {given{acquire}, nil, with(none), false, false, ""},
	} {
		s := b.given(t, store.Name(name), c.given...)
		if c.ago {
			b.Exec(t, ago, s.lock, s.leases[0].Token)
		}
		recorder := postgres.NewRecorder(b.Store)
		recorder.Record(rejectedBy(t, s, c.write), "http", "192.0.2.1", "")
		if err := errors.Join(s.do(t.Context(), c.after...), flush(recorder)); err != nil {
			t.Fatal(err)
		}
		found := rejections(t, b, store.RejectionQuery{RejectionFilter: store.RejectionFilter{Resource: s.lock}})
		if len(found) != 1 || found[0].OwnerID != c.owner || (found[0].Late != nil) != c.late {
			t.Errorf("%s: the record is %+v", name, found)
			continue
		}
		if late := found[0].Late; late != nil && (*late < time.Hour-time.Minute || *late > time.Hour+time.Minute) {
			t.Errorf("%s: it was late by %s, want about an hour", name, *late)
		}
	}
}

// endLater puts the end of the newest lease, which has ended, into the future: after the rejection by any clock.
var endLater = execute("update fence.leases set ended_at = clock_timestamp() + interval '1 minute' where lock = $1")

// expireLater is endLater for one that runs.
var expireLater = execute(`
	update fence.leases set expires_at = clock_timestamp() + interval '1 minute', end_reason = 'expired',
		ended_at = clock_timestamp() + interval '1 minute'
	where lock = $1`)

// TestRecorderKeepsWhatItCannotWrite checks that rejections that can't be written are kept and reported; none is
// counted twice or lost.
func TestRecorderKeepsWhatItCannotWrite(t *testing.T) {
	t.Parallel()
	b := newTestbed(t)
	recorder := postgres.NewRecorder(b.Store)
	rejected := store.RejectedError{Verdict: store.VerdictTokenStale, Reason: "superseded", Resource: "r", Token: 33}
	recorder.Record(&rejected, "http", "192.0.2.1", "")
	b.Exec(t, "alter table fence.rejections rename to hidden")
	for range 2 {
		if err := flush(recorder); !errors.Is(err, store.ErrUnavailable) {
			t.Fatalf("the recorder reported %v, want ErrUnavailable", err)
		}
	}
	recorder.Record(&rejected, "http", "192.0.2.1", "")
	b.Exec(t, "alter table fence.hidden rename to rejections")
	for range 2 {
		flushAll(t, recorder)
	}
	found := rejections(t, b, store.RejectionQuery{})
	if len(found) != 1 || found[0].Count != 2 || recorder.Dropped() != 0 {
		t.Errorf("the record is %+v, want one group, seen twice", found)
	}
}

// TestRecorderSkipsALockedGroup checks that a group whose row another session has locked keeps no other group from being
// recorded, and is recorded later, with one event for each time. The same holds for rejections by SQL, which the sweep
// records.
func TestRecorderSkipsALockedGroup(t *testing.T) {
	t.Parallel()
	b := newTestbed(t)
	recorder, sweeper := postgres.NewRecorder(b.Store), newSweeper(t, b.Store, postgres.SweeperConfig{})
	record := func() error {
		for _, resource := range []store.Name{"free", "locked"} {
			rejected := store.RejectedError{Verdict: store.VerdictTokenStale, Reason: "superseded", Resource: resource, Token: 33}
			recorder.Record(&rejected, "http", "192.0.2.1", "")
			b.Exec(t, `insert into fence.reported (resource, table_name, code, reason, address, fencing_token, granted_token,
				last_token, last_sequence, principal) values ($1, 't', 'token_stale', 'superseded', '', 33, 0, 0, 0, '')`, resource)
		}
		_, err := sweeper.Sweep(t.Context())
		return errors.Join(err, flush(recorder))
	}
	const counts = `select string_agg(format('%s %s %s', resource, source, count), ', ' order by resource, source)
		from fence.rejections`
	expect := func(want string) {
		t.Helper()
		if err := record(); err != nil {
			t.Error(err)
		}
		expectSQL(t, b, want, counts)
	}
	expect("free http 1, free sql 1, locked http 1, locked sql 1")
	unlock := b.hold(t, "select from fence.rejections where resource = 'locked' for update")
	expect("free http 2, free sql 2, locked http 1, locked sql 1")
	unlock()
	expect("free http 3, free sql 3, locked http 3, locked sql 3")
}

// groupsMax is how many groups a Recorder remembers.
const groupsMax = 10_000

// recordGroups records one rejection of each group from one number to another.
func recordGroups(recorder *postgres.Recorder, from, to int64) {
	for i := from; i < to; i++ {
		recorder.Record(&store.RejectedError{Verdict: store.VerdictTokenUnknown, Resource: "r", Token: i + 1}, "http",
			"192.0.2.1", "")
	}
}

// TestRecorderDropsBeyondItsBound checks that groups beyond the bound are dropped and counted, and that rejections of
// known groups are not.
func TestRecorderDropsBeyondItsBound(t *testing.T) {
	t.Parallel()
	b := newTestbed(t)
	recorder := postgres.NewRecorder(b.Store)
	for range 2 {
		recordGroups(recorder, 0, groupsMax+3)
	}
	if got := recorder.Dropped(); got != 6 {
		t.Errorf("%d were dropped, want 6", got)
	}

	flushAll(t, recorder)
	expectSQL(t, b, groupsMax, "select count(*) from fence.rejections")
	expectSQL(t, b, 2*groupsMax, "select sum(count)::bigint from fence.rejections")
}

// TestRecorderDropsWhatItCannotKeep checks that groups that came while a flush failed take precedence over those that
// could not be written.
func TestRecorderDropsWhatItCannotKeep(t *testing.T) {
	t.Parallel()
	b := newTestbed(t)
	recorder := postgres.NewRecorder(b.Store)
	recordGroups(recorder, 0, groupsMax)
	unlock := b.hold(t, "lock table fence.rejections")
	flushed := make(chan error, 1)
	go func() { flushed <- flush(recorder) }()
	if err := b.AwaitBlocked(t.Context(), flushed); err != nil {
		t.Fatal(err)
	}
	recordGroups(recorder, groupsMax-1, groupsMax+99) // one group that is being written, and 99 others
	b.Exec(t, "select pg_cancel_backend(pid) from pg_stat_activity where datname = current_database() and "+
		"wait_event_type = 'Lock'")
	if err := <-flushed; !errors.Is(err, store.ErrUnavailable) {
		t.Fatalf("the recorder reported %v, want ErrUnavailable", err)
	}
	if got := recorder.Dropped(); got != 99 {
		t.Errorf("%d were dropped, want 99", got)
	}
	unlock()
	flushAll(t, recorder)
	expectSQL(t, b, groupsMax, "select count(*) from fence.rejections")
	expectSQL(t, b, 99, "select count(*) from fence.rejections where fencing_token > $1", groupsMax)
	expectSQL(t, b, true, "select count = 2 and first_at < last_at from fence.rejections where fencing_token = $1",
		groupsMax)
}
