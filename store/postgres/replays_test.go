package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/postgres"
)

// replayCases: a numbered write is applied exactly once (P10), however often and however late it is sent.
var replayCases = []ruleCase{
	{"replay: the last write again", given{acquire, wrote(with(newest, sequence(1)))},
		with(newest, sequence(1)), "admitted replayed"},
	{"replay: sequence 0 counts as a number", given{acquire, wrote(with(newest, sequence(0)))},
		with(newest, sequence(0)), "admitted replayed"},
	{"replay: a deletion", given{acquire, wrote(with(newest, sequence(1)), with(newest, sequence(2), deletion))},
		with(newest, sequence(2), deletion), "admitted replayed"},
	{"replay: a write whose precondition it has undone itself",
		given{acquire, wrote(with(newest, sequence(1), expect(0)))},
		with(newest, sequence(1), expect(0)), "admitted replayed"},
	{"replay: after release", given{acquire, wrote(with(newest, sequence(1))), release},
		with(newest, sequence(1)), "admitted replayed"},
	{"replay: after break", given{acquire, wrote(with(newest, sequence(1))), breakLock},
		with(newest, sequence(1)), "admitted replayed"},
	{"replay: after a newer grant", given{acquire, wrote(with(newest, sequence(1))), replace},
		with(first, sequence(1)), "admitted replayed"},
	{"replay: after expiry where a live lease is demanded",
		given{requireLiveLease, acquire, wrote(with(newest, sequence(1))), expire},
		with(newest, sequence(1)), "admitted replayed"},
	{"replay: without the lease_id that is demanded",
		given{requireLeaseID, acquire, wrote(with(newest, sequence(1), ownLeaseID))},
		with(newest, sequence(1)), "admitted replayed"},
	{"replay: under same_token", given{sameToken, acquire, wrote(with(newest, sequence(1)))},
		with(newest, sequence(1)), "admitted replayed"},
	{"replay: under authority external", given{external, wrote(with(token(7), sequence(1)))},
		with(token(7), sequence(1)), "admitted replayed"},
	{"replay: beyond all grants, once the authority is builtin again",
		given{external, wrote(with(token(store.TokenMax-1), sequence(1))), under(store.Policy{})},
		with(token(store.TokenMax-1), sequence(1)), "admitted replayed"},

	{"no replay: the newer holder has written", given{acquire, wrote(with(newest, sequence(1))), replace,
		wrote(with(newest))},
		with(first, sequence(1)), "token_stale superseded"},
	{"no replay: the write before the last", given{acquire, wrote(with(newest, sequence(1)), with(newest, sequence(2)))},
		with(newest, sequence(1)), "token_stale reused"},
	{"no replay: unnumbered", given{acquire, wrote(with(newest))}, with(newest), "token_stale reused"},
	{"no replay: numbered 0 after unnumbered", given{acquire, wrote(with(newest))},
		with(newest, sequence(0)), "token_stale reused"},
	{"no replay: unnumbered after numbered 0", given{acquire, wrote(with(newest, sequence(0)))},
		with(newest), "token_stale reused"},
	{"no replay: unnumbered after numbered 0, under same_token",
		given{sameToken, acquire, wrote(with(newest, sequence(0)))}, with(newest), "admitted"},
	{"no replay: after an unnumbered write, under same_token",
		given{sameToken, acquire, wrote(with(newest, sequence(1)), with(newest, value("other")))},
		with(newest, sequence(1)), "token_stale reused"},
	{"no replay: another token", given{acquire, wrote(with(newest, sequence(1))), replace},
		with(newest, sequence(1)), "admitted"},
	{"no replay: another sequence", given{acquire, wrote(with(newest, sequence(1)))},
		with(newest, sequence(2)), "admitted"},

	{"no replay: another value", given{acquire, wrote(with(newest, sequence(1)))},
		with(newest, sequence(1), value("other")), "token_stale reused"},
	{"no replay: another key", given{acquire, wrote(with(newest, sequence(1)))},
		with(newest, sequence(1), key("other")), "token_stale reused"},
	{"no replay: another content type", given{acquire, wrote(with(newest, sequence(1)))},
		with(newest, sequence(1), contentType("text/html")), "token_stale reused"},
	{"no replay: another precondition", given{acquire, wrote(with(newest, sequence(1), expect(0)))},
		with(newest, sequence(1)), "token_stale reused"},
	{"no replay: a deletion for a put", given{acquire, wrote(with(newest, sequence(1)))},
		with(newest, sequence(1), deletion), "token_stale reused"},
	{"no replay: the same bytes, divided otherwise",
		given{acquire, wrote(with(newest, sequence(1), key("a"), contentType("text/plain")))},
		with(newest, sequence(1), key("at"), contentType("ext/plain")), "token_stale reused"},
}

// TestReplayOfALockedFence checks that a replay is answered once while its fence is locked, and is not put off as well.
func TestReplayOfALockedFence(t *testing.T) {
	t.Parallel()
	s := newFixture(t, acquire)
	const write = `select admitted, replayed, busy
		from fence.write(array['lock'], array[$1::bigint], array[$2::bigint], array[null::uuid], array['\x01'::bytea],
			array['put'], array['k'], array['v'::bytea], array['text/plain'], array[null::bigint], array[1], $3)`
	s.Exec(t, write, s.newest().Token, 1, nil)
	s.hold(t, "select from fence.fences for update")
	for sequence, want := range map[int][3][]int32{1: {{1}, {1}, nil}, 2: {nil, nil, {1}}} {
		var got [3][]int32
		err := s.SQL.QueryRow(t.Context(), write, s.newest().Token, sequence, 0).Scan(&got[0], &got[1], &got[2])
		if err != nil || !slices.EqualFunc(got[:], want[:], slices.Equal[[]int32]) {
			t.Errorf("with sequence %d the answer is %v (%v), want %v", sequence, got, err, want)
		}
	}
}

// TestReplayWaitsForStandbys checks that the transaction of a replay has something to commit, so that its answer waits
// for the disk and the standbys.
func TestReplayWaitsForStandbys(t *testing.T) {
	t.Parallel()
	s := newFixture(t, acquire)
	const write = `select verdict from fence.write_one(
		'lock', $1, 1, null, '\x01', 'put', 'k', 'v', 'text/plain', null, null)`
	s.Exec(t, write, s.newest().Token)
	tx := s.begin(t)
	var verdict string
	if err := tx.QueryRow(t.Context(), write, s.newest().Token).Scan(&verdict); err != nil || verdict != "admitted" {
		t.Fatalf("the replay is %q (%v)", verdict, err)
	}
	var commits bool
	err := tx.QueryRow(t.Context(), "select pg_current_xact_id_if_assigned() is not null").Scan(&commits)
	if err != nil || !commits {
		t.Errorf("the transaction of the replay commits something: %v (%v)", commits, err)
	}
}

// requestCases: an acquire sent again with its request_id is the same acquire.
var requestCases = []storeCase{
	{"request_id: the same lease again", all(request("r"),
		changingNothing(request("r"), func(_ context.Context, s *fixture) error {
			first, again := s.leases[0], s.leases[1]
			first.Replayed = true
			if !reflect.DeepEqual(first, again) {
				return fmt.Errorf("the first answer is %+v, the second %+v", first, again)
			}
			return nil
		}))},
	{"request_id: a renewed lease", all(request("r"), func(ctx context.Context, s *fixture) error {
		renewed, err := s.Renew(ctx, s.newest().Ref(), 2*time.Hour)
		if err = errors.Join(err, s.do(ctx, request("r"))); err == nil && !s.newest().ExpiresAt.Equal(renewed.ExpiresAt) {
			err = fmt.Errorf("the lease is %+v after it was renewed to %+v", s.newest(), renewed)
		}
		return err
	})},
	{"request_id: of another owner", all(request("r"), changingNothing(func(ctx context.Context, s *fixture) error {
		_, err := s.Acquire(ctx, store.AcquireRequest{Lock: s.lock, OwnerID: "another", TTL: time.Hour, RequestID: "r"})
		if !errors.Is(err, store.ErrInvalid) {
			return fmt.Errorf("the acquire returned %w, want ErrInvalid", err)
		}
		return nil
	}))},
	{"request_id: with other parameters", requestOtherwise()},
	{"request_id: with other parameters, of a lease that was renewed",
		requestOtherwise(func(ctx context.Context, s *fixture) error {
			_, err := s.Renew(ctx, s.newest().Ref(), time.Minute)
			return err
		})},
	{"request_id: with other parameters, of a lease that was released", requestOtherwise(release)},
	{"request_id: a ticket with other parameters", all(openSession, acquire, queuedOtherwise)},
	{"request_id: of a lease that was released", requestAfter("released", release)},
	{"request_id: of a lease that was broken", requestAfter("broken", breakLock)},
	{"request_id: of a lease that has expired", requestAfter("expired", expire)},
	{"request_id: of a lease that has expired and was swept", requestAfter("expired", expire, sweep)},
	{"request_id: of a lease that was replaced", requestAfter("expired", replace)},
	{"request_id: of a lease that was released before another", requestAfter("released", release, acquire)},
}

// request acquires with a request_id.
func request(id string) step {
	return func(ctx context.Context, s *fixture) error {
		lease, err := s.Acquire(ctx, store.AcquireRequest{Lock: s.lock, OwnerID: "requester", TTL: time.Hour, RequestID: id})
		s.leases = append(s.leases, lease)
		return err
	}
}

// requestChanges are what may not change when a request is sent again.
var requestChanges = map[string]func(s *fixture, r *store.AcquireRequest){
	"mode":     func(_ *fixture, r *store.AcquireRequest) { r.Mode = store.Shared },
	"scope":    func(_ *fixture, r *store.AcquireRequest) { r.Scope = store.Subtree },
	"ttl":      func(_ *fixture, r *store.AcquireRequest) { r.TTL = time.Minute },
	"session":  func(s *fixture, r *store.AcquireRequest) { r.SessionID, r.TTL = s.session.ID, 0 },
	"metadata": func(_ *fixture, r *store.AcquireRequest) { r.Metadata = []byte(`{"other":1}`) },
}

// requestOtherwise sends a request again with other parameters, after it was granted and the steps: it is refused.
func requestOtherwise(steps ...step) step {
	return all(openSession, request("r"), all(steps...), changingNothing(func(ctx context.Context, s *fixture) error {
		for name, change := range requestChanges {
			again := store.AcquireRequest{Lock: s.lock, OwnerID: "requester", TTL: time.Hour, RequestID: "r"}
			change(s, &again)
			if lease, err := s.Acquire(ctx, again); !errors.Is(err, store.ErrInvalid) {
				return fmt.Errorf("with another %s the acquire returned %+v, %w, want ErrInvalid", name, lease, err)
			}
		}
		return nil
	}))
}

// queuedOtherwise sends a request that waits again, from another gateway and with other parameters: it does not get the
// ticket. Only the time to wait may differ.
func queuedOtherwise(ctx context.Context, s *fixture) error {
	request := store.AcquireRequest{Lock: s.lock, OwnerID: "requester", Mode: store.Exclusive, Scope: store.Node,
		TTL: time.Hour, RequestID: "r", Wait: time.Minute}
	enqueue := func(r store.AcquireRequest, again bool) error {
		acquired, err := s.Enqueue(ctx, r, uuid.New(), store.ToQueue{})
		if err == nil && (acquired.Ticket == 0 || acquired.Requeued != again) {
			err = fmt.Errorf("%+v is not in the queue, or had a ticket before or not: %+v", r, acquired)
		}
		return err
	}
	if err := enqueue(request, false); err != nil {
		return err
	}
	for name, change := range requestChanges {
		again := request
		change(s, &again)
		err := s.Unchanged(ctx, func() error {
			if err := enqueue(again, true); !errors.Is(err, store.ErrInvalid) {
				return fmt.Errorf("with another %s the acquire returned %w, want ErrInvalid", name, err)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	request.Wait = time.Hour
	return enqueue(request, true)
}

// requestAfter sends the request of a lease that has ended: no other lease is granted instead.
func requestAfter(reason string, ended ...step) step {
	return all(request("r"), all(ended...), changingNothing(func(ctx context.Context, s *fixture) error {
		return expectLost(request("r")(ctx, s), s.lock, reason)
	}))
}

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
