package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/fencegate/fencegate/internal/test/spec/drive"
	pgtest "github.com/fencegate/fencegate/internal/test/testenv/postgres"
	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/postgres"
)

// acquireIn acquires locks in a session, several at a time.
func acquireIn(t *testing.T, on *postgres.Store, session store.Session, locks []store.Name) {
	t.Helper()
	var acquiring sync.WaitGroup
	for part := range 4 {
		acquiring.Go(func() {
			for i := part; i < len(locks); i += 4 {
				if _, err := on.Acquire(context.Background(), store.AcquireRequest{Lock: locks[i], OwnerID: "owner",
					SessionID: session.ID}); err != nil {
					t.Errorf("acquire %s: %v", locks[i], err)
				}
			}
		})
	}
	acquiring.Wait()
}

// hold keeps what a statement locks until the test ends, or letGo is called.
func (b *testbed) hold(t *testing.T, sql string, args ...any) (letGo func()) {
	t.Helper()
	_, letGo = b.LockedBy(t, sql, args...)
	return letGo
}

const (
	lockFenceSQL = "select from fence.fences where resource = $1 for update"
	// requestSubtreeSQL is what is left of a request for a subtree lease.
	requestSubtreeSQL = "insert into fence.fences (resource, subtree_token) values ($1, 0) " +
		"on conflict (resource) do update set subtree_token = 0"
)

// TestEndSessionOfDeepNames checks that sessions with hundreds of leases on deep names, none of which has an ancestor
// in common with another, end on a server whose lock table has room for fewer names, several sessions at once.
func TestEndSessionOfDeepNames(t *testing.T) {
	t.Parallel()
	url := pgtest.NewCluster(t, pgtest.Setting("max_connections", "12")).URL()
	s := openStore(t, postgres.Config{DatabaseURL: url})
	if err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	const sessions, leases, depth = 2, 200, 60
	var ending sync.WaitGroup
	defer ending.Wait()
	for n := range sessions {
		session, err := s.CreateSession(t.Context(), store.SessionRequest{OwnerID: "owner", TTL: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		var locks []store.Name
		for i := range leases {
			locks = append(locks, store.Name(fmt.Sprintf("%d-%d", n, i)+strings.Repeat("/x", depth)))
		}
		acquireIn(t, s, session, locks)
		ending.Go(func() {
			ended, err := s.EndSession(context.Background(), session.ID)
			// One call goes on for 5 s. Each lease is a commit of its own, which may take longer on a busy machine.
			for begun := time.Now(); errors.Is(err, store.ErrUnavailable) && time.Since(begun) < time.Minute; {
				var more int64
				more, err = s.EndSession(context.Background(), session.ID)
				ended += more
			}
			if err != nil || ended != leases {
				t.Errorf("%d of %d leases ended (%v)", ended, leases, err)
			}
		})
	}
}

// TestEndSessionSkipsALockedFence checks that the end of a session closes all fences but one that is locked, returns an
// unknown outcome, and succeeds when it is sent again.
func TestEndSessionSkipsALockedFence(t *testing.T) {
	t.Parallel()
	b := newTestbed(t)
	session := b.session(t, "owner")
	acquireIn(t, b.Store, session, []store.Name{"a", "b", "c"})
	letGo := b.hold(t, lockFenceSQL, "b")
	ended, err := b.EndSession(t.Context(), session.ID)
	var unavailable *store.UnavailableError
	if !errors.As(err, &unavailable) || unavailable.Outcome != store.OutcomeUnknown || ended != 2 {
		t.Errorf("with a fence locked %d leases ended (%v), want 2 and an unknown outcome", ended, err)
	}
	b.expectOpenFences(t, "b")
	letGo()
	if ended, err := b.EndSession(t.Context(), session.ID); err != nil || ended != 1 {
		t.Errorf("sent again %d leases ended (%v), want 1", ended, err)
	}
	b.expectOpenFences(t, "")
}

func (b *testbed) expectOpenFences(t *testing.T, want string) {
	t.Helper()
	expectSQL(t, b, want, "select coalesce(string_agg(resource, ' ' order by resource), '') from fence.fences where open")
}

// TestEndSessionWaitsForNotifications checks that the end of a session's leases waits for a commit that notifies, longer
// than for a fence.
func TestEndSessionWaitsForNotifications(t *testing.T) {
	t.Parallel()
	b, _ := newCrashbed(t)
	session := b.session(t, "owner")
	acquireIn(t, b.Store, session, []store.Name{"a"})
	b.enqueueNext(t, "a") // whose gateway the end of the lease notifies
	b.Exec(t, "update fence.sessions set ended_at = clock_timestamp(), end_reason = 'released'")
	if err := b.duringNotification(t, func() error {
		_, err := b.SQL.Exec(context.Background(), "select fence.settle_leases($1, '', 64, 20)", session.ID)
		return err
	}); err != nil {
		t.Error(err)
	}
	b.expectOpenFences(t, "")
}

// TestHandOverWaitsForNotifications checks the same of a release that grants the lock to the next: its commit fails with
// a lock timeout after its rows were read, and it is sent again.
func TestHandOverWaitsForNotifications(t *testing.T) {
	t.Parallel()
	b, _ := newCrashbed(t)
	lease, err := b.Acquire(t.Context(), store.AcquireRequest{Lock: "a", OwnerID: "first", TTL: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	gateway := b.enqueueNext(t, "a")
	b.enqueueNext(t, "a") // whose gateway the hand-over notifies
	var results []store.QueueResult
	if err := b.duringNotification(t, func() (err error) {
		_, results, err = b.HandOver(context.Background(), lease.Ref(), gateway)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if len(results) != 1 || !results[0].Done || results[0].Err != nil {
		t.Errorf("the hand-over returned %+v, want one grant", results)
	}
}

// enqueueNext lets a waiter of a new gateway join the queue of a held lock.
func (b *testbed) enqueueNext(t *testing.T, lock store.Name) (gateway uuid.UUID) {
	t.Helper()
	gateway = uuid.New()
	if _, err := b.Heartbeat(t.Context(), gateway, time.Hour); err != nil {
		t.Fatal(err)
	}
	waits := store.AcquireRequest{
		Lock: lock, OwnerID: "next", TTL: time.Hour, Wait: time.Hour, Mode: store.Exclusive, Scope: store.Node,
	}
	if queued, err := b.Enqueue(t.Context(), waits, gateway, store.ToQueue{}); err != nil || queued.Ticket == 0 {
		t.Fatalf("the acquire of a held lock got %+v (%v), want a ticket", queued, err)
	}
	return gateway
}

// duringNotification returns what call returns, whose commit notifies, and meets another one that does: PostgreSQL lets
// one such transaction commit at a time, and here that one waits for a standby, until call has waited for 200 ms.
func (b *testbed) duringNotification(t *testing.T, call func() error) error {
	t.Helper()
	b.Exec(t, "create table public.changed (x integer)") // only a transaction that changes something waits for a standby
	b.Exec(t, "alter system set synchronous_standby_names = 'missing'")
	b.Exec(t, "select pg_reload_conf()")
	await(t, "commits wait for a standby", func() bool {
		return b.Count(t, "select count(*) from pg_settings where name = 'synchronous_standby_names' and setting = 'missing'") == 1
	})
	notified, called := make(chan error, 1), make(chan error, 1)
	notify := func() {
		_, err := b.SQL.Exec(context.Background(), `with change as (insert into public.changed values (1))
			select set_config('synchronous_commit', 'on', true), pg_notify('any', '')`)
		notified <- err
	}
	go notify()
	await(t, "a notification waits for a standby", func() bool {
		select {
		case err := <-notified: // the server did not know yet that commits wait
			if err != nil {
				t.Fatal(err)
			}
			go notify()
		default:
		}
		return b.Count(t, "select count(*) from pg_stat_activity where wait_event = 'SyncRep'") == 1
	})
	go func() { called <- call() }()
	err := b.AwaitBlocked(t.Context(), called)
	b.Exec(t, "select pg_sleep(0.2)")
	b.Exec(t, "alter system reset synchronous_standby_names")
	b.Exec(t, "select pg_reload_conf()")
	return errors.Join(err, <-notified, <-called)
}

// TestSweepSkipsALockedSession checks that a session that can't be settled does not keep others from being settled, and
// is settled later. The leases of all are counted as expired, also those that EndSession ended after the expiry.
func TestSweepSkipsALockedSession(t *testing.T) {
	t.Parallel()
	b := newTestbed(t)
	sweeper := newSweeper(t, b.Store, postgres.SweeperConfig{})
	for _, lock := range []store.Name{"stuck", "free"} {
		session := b.session(t, "owner")
		acquireIn(t, b.Store, session, []store.Name{lock})
		b.Exec(t, drive.ExpireSession, session.ID)
	}
	letGo := b.hold(t, lockFenceSQL, "stuck")
	swept, err := sweeper.Sweep(t.Context())
	if want := (store.Swept{SessionsExpired: 2, Expired: 1}); err == nil || swept != want {
		t.Errorf("with a fence locked the sweep did %+v (%v), want %+v and an error", swept, err, want)
	}
	b.expectOpenFences(t, "stuck")
	letGo()
	expectSwept(t, sweeper, store.Swept{}) // it is left alone for a while
	b.Exec(t, "update fence.sessions set check_at = clock_timestamp() where not settled")
	expectSwept(t, sweeper, store.Swept{Expired: 1})

	late, ended := b.session(t, "owner"), b.session(t, "owner")
	acquireIn(t, b.Store, late, []store.Name{"late"})
	acquireIn(t, b.Store, ended, []store.Name{"ended"})
	b.Exec(t, drive.ExpireSession, late.ID)
	if _, err := b.EndSession(t.Context(), late.ID); !errors.Is(err, store.ErrLeaseLost) {
		t.Errorf("the end of an expired session: %v", err)
	}
	b.Exec(t, "select fence.end_session($1)", ended.ID) // its leases are left to the sweep
	expectSwept(t, sweeper, store.Swept{Expired: 1})
	b.expectOpenFences(t, "")
}

// TestSettleWakesInPortions checks that the waiters of an ended session leave their queues, however many those are, and
// wake those behind them.
func TestSettleWakesInPortions(t *testing.T) {
	t.Parallel()
	s := newServices(t, newTestbed(t), 2, noPoll)
	session := s.OpenSession(t, 0, "owner", time.Hour)
	const locks = 70 // more than one portion
	var inside, behind []<-chan outcome
	for i := range locks {
		lock := store.Name(fmt.Sprintf("%d/lock", i))
		s.Acquire(t, 0, store.AcquireRequest{Lock: lock, OwnerID: "reader", Mode: store.Shared})
		inside = append(inside, goAcquire(patient(t), s.At(0), store.AcquireRequest{Lock: lock, OwnerID: "owner",
			SessionID: session.ID, Wait: store.WaitMax}))
	}
	s.AwaitQueued(t, locks)
	for i := range locks {
		behind = append(behind, goAcquire(patient(t), s.At(1),
			store.AcquireRequest{Lock: store.Name(fmt.Sprintf("%d/lock", i)), OwnerID: fmt.Sprint("behind ", i),
				Mode: store.Shared, Wait: store.WaitMax}))
	}
	s.AwaitQueued(t, 2*locks)
	if _, err := s.At(1).EndSession(patient(t), session.ID); err != nil {
		t.Error(err)
	}
	for i := range locks {
		if got := answered(t, inside[i]); !errors.Is(got.Err, store.ErrLeaseLost) {
			t.Errorf("a waiter of the session got %+v", got)
		}
		granted(t, behind[i])
	}
}

// TestSweepPartsAreIndependent checks that a part of the sweep that fails does not keep the others from being done.
func TestSweepPartsAreIndependent(t *testing.T) {
	t.Parallel()
	b := newTestbed(t)
	sweeper := newSweeper(t, b.Store, postgres.SweeperConfig{})
	seedEnded(t, b, 1, 2)
	b.given(t, "late", acquire, expire)
	letGo := b.hold(t, "lock table fence.rejections, fence.gateway_states")
	swept, err := sweeper.Sweep(t.Context())
	if want := (store.Swept{Expired: 1, LeasesForgotten: 1}); err == nil || swept != want {
		t.Errorf("with tables locked the sweep did %+v (%v), want %+v and an error", swept, err, want)
	}
	letGo()
	expectSwept(t, sweeper, store.Swept{})
}

// TestSweepIsDoneByOneGateway checks that a part of the sweep that one gateway does is skipped by the others, and is
// done by the next one as soon as the connection of that gateway has ended.
func TestSweepIsDoneByOneGateway(t *testing.T) {
	t.Parallel()
	b := newTestbed(t)
	b.given(t, "late", acquire, expire)
	conn, err := pgx.Connect(t.Context(), b.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(t.Context()))
	if _, err := conn.Exec(t.Context(), "begin; select fence.sweep('leases', '0', 1000, null, null)"); err != nil {
		t.Fatal(err)
	}
	sweeper := newSweeper(t, b.Store, postgres.SweeperConfig{})
	expectSwept(t, sweeper, store.Swept{})
	pid := conn.PgConn().PID()
	if err := conn.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	await(t, "the first gateway's connection has ended", func() bool {
		return b.Count(t, "select count(*) from pg_stat_activity where pid = $1", pid) == 0
	})
	expectSwept(t, sweeper, store.Swept{Expired: 1})

	// A sweep that comes too early does nothing.
	b.Exec(t, "update fence.leases set ended_at = null, end_reason = null, check_at = expires_at where lock = 'late'")
	expectSQL(t, b, 0, "select done from fence.sweep('leases', interval '1 hour', 1000, null, null)")
}

func openSession(ctx context.Context, s *fixture) error {
	session, err := s.CreateSession(ctx, store.SessionRequest{OwnerID: "owner-1", TTL: time.Hour})
	s.session = &session
	return err
}

// inSession makes a grant one in the session of the fixture.
func inSession(grant step) step {
	return func(ctx context.Context, s *fixture) error {
		s.sessionID = s.session.ID
		defer func() { s.sessionID = uuid.Nil }()
		return grant(ctx, s)
	}
}

func endSession(ctx context.Context, s *fixture) error {
	_, err := s.EndSession(ctx, s.session.ID)
	return err
}

// expireSession lets the time of the session run out.
func expireSession(ctx context.Context, s *fixture) error {
	_, err := s.SQL.Exec(ctx, drive.ExpireSession, s.session.ID)
	return err
}

// sessionRuleCases: a lease in a session writes as others do, until the session ends.
var sessionRuleCases = []ruleCase{
	{"session: after its end", given{openSession, inSession(acquire), endSession}, with(newest), "token_stale released"},
	{"session: below, after its end", given{openSession, inSession(acquireSubtree), endSession},
		with(newest, at("/x")), "token_stale released"},
	{"session: when it has expired where a live lease is demanded",
		given{requireLiveLease, openSession, inSession(acquire), expireSession}, with(newest), "lease_expired"},
	{"session: when it has expired and was swept", given{openSession, inSession(acquire), expireSession, sweep},
		with(newest), "token_stale released"},
	{"session: below, swept after a name below was granted",
		given{openSession, inSession(acquireSubtree), expireSession, onBelow("/x", acquire), sweep},
		with(newest, at("/y")), "token_stale released"},
}

// sessionCases are promises of leases in a session that need more than the calls of the conformance suite.
var sessionCases = []storeCase{
	{"session: a lease in it is not renewed", all(openSession, inSession(acquire),
		changingNothing(func(ctx context.Context, s *fixture) error {
			if _, err := s.Renew(ctx, s.newest().Ref(), 2*time.Hour); !errors.Is(err, store.ErrInvalid) {
				return fmt.Errorf("the renewal returned %w, want ErrInvalid", err)
			}
			return nil
		}))},
	{"session: about 10,000 leases", all(openSession, inSession(acquire), manyLeases(9998), refusedForSize(false),
		manyLeases(1), refusedForSize(true))},
	{"session: a lease ends with it", all(openSession, inSession(acquire), endsWithSession)},
	{"session: a lease that expired before it is swept", all(openSession, inSession(acquire),
		execute("update fence.leases set expires_at = clock_timestamp() where lock = $1"), keepAlive, sweep,
		counted(1, "select count(*) from fence.leases where lock = $1 and end_reason = 'expired'"))},
	{"session: a lease that expired before it is not released", all(openSession, inSession(acquire),
		execute("update fence.leases set expires_at = clock_timestamp() where lock = $1"),
		func(ctx context.Context, s *fixture) error {
			released, err := s.EndSession(ctx, s.session.ID)
			if err == nil && released != 0 {
				err = fmt.Errorf("%d leases were released, want none", released)
			}
			return err
		})},
	{"session: a keepalive moves its leases", all(openSession, inSession(acquire), keepAlive, endsWithSession)},
	{"session: a keepalive moves its waiters", all(acquire, openSession, inSession(joinQueueAt(uuid.New())), keepAlive,
		counted(1, "select count(*) from fence.waiters w join fence.sessions s using (session_id) where w.lock = $1 and "+
			"w.session_until = s.expires_at"))},
	{"session: over", all(openSession, endSession, changingNothing(sessionLost("released"), endSession))},
	{"session: expired", all(openSession, expireSession, changingNothing(sessionLost("expired")),
		func(ctx context.Context, s *fixture) error {
			return expectLost(endSession(ctx, s), "", "expired")
		}, changingNothing(sessionLost("expired")))},
}

// joinQueueAt makes a request of another owner wait, at a gateway.
func joinQueueAt(gateway uuid.UUID) step {
	return func(ctx context.Context, s *fixture) error {
		request := s.request(store.Exclusive)
		request.SessionID, request.TTL, request.Wait = s.sessionID, 0, time.Hour
		_, err := s.Heartbeat(ctx, gateway, time.Hour)
		if err == nil {
			_, err = s.Enqueue(ctx, request, gateway, store.ToQueue{})
		}
		return err
	}
}

func endsWithSession(ctx context.Context, s *fixture) error {
	return counted(1, "select count(*) from fence.leases l join fence.sessions s using (session_id) where l.lock = $1 and "+
		"l.expires_at = s.expires_at")(ctx, s)
}

// sessionLost uses a session that is over. Both calls return the reason, and name no lock.
func sessionLost(reason string) step {
	return func(ctx context.Context, s *fixture) error {
		_, err := s.KeepAlive(ctx, s.session.ID)
		return errors.Join(expectLost(err, "", reason), expectLost(s.do(ctx, inSession(acquire)), "", reason))
	}
}

// manyLeases puts leases on names beside into the session.
func manyLeases(n int) step {
	return func(ctx context.Context, s *fixture) error {
		_, err := s.SQL.Exec(ctx, `
			insert into fence.leases (lock, fencing_token, lease_id, session_id, ttl_ms, granted_at, expires_at)
			select format('%s-%s-%s', l.lock, $2::integer, n), n, lease_id, session_id, ttl_ms, granted_at, expires_at
			from fence.leases l, generate_series(1, $2) n where l.lock = $1`, s.lock, n)
		return err
	}
}

// refusedForSize expects whether the session refuses more leases; one call in 64 finds out.
func refusedForSize(want bool) step {
	return func(ctx context.Context, s *fixture) error {
		_, err := s.SQL.Exec(ctx, `
			select fence.check_session_size(l.session_id) from fence.leases l, generate_series(1, 2000) where l.lock = $1`, s.lock)
		if got := sqlState(err) == "LF007"; got != want {
			return fmt.Errorf("that the session refuses another lease is %t (%w)", got, err)
		}
		return nil
	}
}
