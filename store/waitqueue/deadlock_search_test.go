package waitqueue_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/internal/test/testenv/enginetest"
	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/engine"
)

// manualBeats is for tests in which a gateway misses its heartbeats.
var manualBeats = engine.Config{PollInterval: time.Hour, HeartbeatInterval: time.Minute, DeadAfter: time.Hour}

func (s *engines) awaitDeadlocksChecked(t *testing.T) {
	t.Helper()
	await.True(t, "all waits have been looked at for cycles", func() bool {
		return !slices.ContainsFunc(s.All, func(on *enginetest.Running) bool { return !on.Waiters().DeadlocksChecked() })
	})
}

// An owner that has a lease joins a queue while another such owner has just done so and not committed: neither waits
// for the other.
func TestEnqueueTakesNoGlobalLock(t *testing.T) {
	t.Parallel()
	s := newEngines(t, enginetest.New(t), 1, enginetest.NoPoll)
	for _, owner := range []string{"a", "b"} {
		s.Acquire(t, 0, store.AcquireRequest{Lock: store.Name(owner + " has"), OwnerID: owner})
		s.Acquire(t, 0, store.AcquireRequest{Lock: store.Name(owner + " wants"), OwnerID: "holder"})
	}
	for _, owner := range []string{"a", "b"} {
		tx, err := s.SQL.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
		var outcome string
		if _, err := tx.Exec(t.Context(), "set local lock_timeout = '1s'"); err != nil {
			t.Fatal(err)
		}
		const sql = `select outcome from fence.acquire_lease(fence.lease_request($1, $2, 'exclusive', 'node', 1000, null, null, null), 60000, $3)`
		if err := tx.QueryRow(t.Context(), sql, owner+" wants", owner, s.At(0).GatewayID()).Scan(&outcome); err != nil ||
			outcome != "queued" {
			t.Fatalf("owner %s: %s (%v), want queued while the other has not committed", owner, outcome, err)
		}
	}
}

// A gateway misses its heartbeats while the other wait of a cycle begins, so the cycle is not there yet. When its
// heartbeats arrive again, exactly one of the two waits is refused.
func TestThawClosesACycle(t *testing.T) {
	t.Parallel()
	s := newEngines(t, enginetest.New(t), 2, manualBeats)
	leases := [2]store.Lease{
		s.Acquire(t, 0, store.AcquireRequest{Lock: "left", OwnerID: "owner 0"}),
		s.Acquire(t, 1, store.AcquireRequest{Lock: "right", OwnerID: "owner 1"}),
	}
	var waits [2]<-chan enginetest.Outcome
	waits[0] = s.Queue(t, 0, store.AcquireRequest{Lock: "right", OwnerID: "owner 0"})
	s.awaitDeadlocksChecked(t)
	s.Exec(t, "update fence.gateways set alive_until = clock_timestamp() where gateway_id = $1", s.At(0).GatewayID())
	waits[1] = s.Queue(t, 1, store.AcquireRequest{Lock: "left", OwnerID: "owner 1"})
	s.awaitDeadlocksChecked(t)
	enginetest.Unanswered(t, waits[1])

	if err := s.At(0).Waiters().SendHeartbeat(await.Context(t)); err != nil {
		t.Fatal(err)
	}
	s.expectOneRefused(t, waits, leases)
}

// A waiter of a gateway that is gone sends its request again elsewhere, after the other wait of a cycle began.
func TestTakeoverClosesACycle(t *testing.T) {
	t.Parallel()
	s := newEngines(t, enginetest.New(t), 3, manualBeats)
	leases := [2]store.Lease{
		s.Acquire(t, 0, store.AcquireRequest{Lock: "left", OwnerID: "owner 0"}),
		s.Acquire(t, 1, store.AcquireRequest{Lock: "right", OwnerID: "owner 1"}),
	}
	request := store.AcquireRequest{Lock: "right", OwnerID: "owner 0", RequestID: "again", Wait: store.WaitMax}
	ctx, leave := context.WithCancel(await.Context(t))
	lost := s.QueueFor(ctx, t, 2, request)
	s.awaitDeadlocksChecked(t)
	s.Exec(t, "update fence.gateways set alive_until = clock_timestamp() where gateway_id = $1", s.At(2).GatewayID())
	var waits [2]<-chan enginetest.Outcome
	waits[1] = s.Queue(t, 1, store.AcquireRequest{Lock: "left", OwnerID: "owner 1"})
	s.awaitDeadlocksChecked(t)
	waits[0] = enginetest.GoAcquire(await.Context(t), s.At(0), request)
	s.expectOneRefused(t, waits, leases)
	leave()
	enginetest.Answered(t, lost)
}

// A search for a cycle that failed is made again in full: others may have come behind the wait since it began.
func TestFailedSearchIsMadeAgainInFull(t *testing.T) {
	t.Parallel()
	b := enginetest.New(t)
	s := newEngines(t, b, 1, enginetest.NoPoll)
	cutter := enginetest.NewCutter(t, b)
	cut := enginetest.Run(t, cutter.Through(t), enginetest.NoPoll)
	cutter.Cut(enginetest.BeforeServer, "fence.find_new_deadlocks") // no short search ever succeeds
	leases := [2]store.Lease{
		s.Acquire(t, 0, store.AcquireRequest{Lock: "left", OwnerID: "owner 0"}),
		s.Acquire(t, 0, store.AcquireRequest{Lock: "right", OwnerID: "owner 1"}),
	}
	waits := [2]<-chan enginetest.Outcome{s.Queue(t, 0, store.AcquireRequest{Lock: "right", OwnerID: "owner 0"})}
	waits[1] = enginetest.GoAcquire(await.Context(t), cut,
		store.AcquireRequest{Lock: "left", OwnerID: "owner 1", Wait: store.WaitMax})
	s.expectOneRefused(t, waits, leases)
}

// expectOneRefused expects that of two waits, each for the other's lease, one is refused, and the other served once
// that lease is released.
func (s *engines) expectOneRefused(t *testing.T, waits [2]<-chan enginetest.Outcome, leases [2]store.Lease) {
	t.Helper()
	refused := 0
	var first enginetest.Outcome
	select {
	case first = <-waits[0]:
	case first = <-waits[1]:
		refused = 1
	case <-time.After(enginetest.AnswerLimit):
		t.Fatalf("neither wait was refused within %s:\n%s", enginetest.AnswerLimit, s.Describe(t))
	}
	var deadlock *store.DeadlockError
	if !errors.As(first.Err, &deadlock) || len(deadlock.Cycle) != 2 ||
		deadlock.Cycle[0].OwnerID != leases[refused].OwnerID {
		t.Fatalf("the first answer is %+v, want ErrDeadlock with the cycle of two", first)
	}
	s.awaitDeadlocksChecked(t)
	enginetest.Unanswered(t, waits[1-refused])
	s.Release(t, 0, leases[refused])
	s.Release(t, 0, enginetest.Granted(t, waits[1-refused]))
	s.Release(t, 0, leases[1-refused])
}

// The search reads little where one of its ends has little to read, however long the queue at the other end is.
func TestDeadlockSearchReadsLittle(t *testing.T) {
	t.Parallel()
	const waiters = 2000
	for name, locks := range map[string][2]string{
		"the owner of a long queue waits for another lock": {"hot", "cold"},
		"the owner of another lock joins a long queue":     {"cold", "hot"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := enginetest.New(t)
			crowd(t, b.URL, waiters, locks[0])
			tx, err := b.SQL.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
			var tickets []int64
			var read int
			err = errors.Join(
				tx.QueryRow(t.Context(), `select array(select a.ticket
					from fence.acquire_lease(fence.lease_request($1, 'X', 'exclusive', 'node', 1000, null, null, null), 60000, $2) a)`,
					locks[1], crowdGateway).Scan(&tickets),
				tx.QueryRow(t.Context(), "select count(*) from fence.find_new_deadlocks($1)", tickets).Scan(&read))
			if err != nil || len(tickets) != 1 || read != 0 {
				t.Fatalf("tickets %v, %d deadlocks (%v)", tickets, read, err)
			}
			const sql = `select idx_tup_fetch + seq_tup_read from pg_stat_xact_user_tables where relid = 'fence.waiters'::regclass`
			if err := tx.QueryRow(t.Context(), sql).Scan(&read); err != nil || read > waiters/2 {
				t.Errorf("%d rows were read (%v), of %d waiters", read, err, waiters)
			}
		})
	}
}

const crowdGateway = "00000000-0000-0000-0000-000000000001"

// crowd has X hold one of the locks hot and cold, and Y the other; many wait for hot, and one for cold. Another
// principal's X waits for many other locks.
func crowd(t testing.TB, url string, waiters int, has string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(t.Context()))
	for _, sql := range []string{
		"insert into fence.gateways values ('" + crowdGateway + "', clock_timestamp() + interval '1 day')",
		"insert into fence.fences (resource, granted_token) values ('hot', 1), ('cold', 2)",
		`insert into fence.leases (lock, fencing_token, lease_id, owner_id, mode, ttl_ms, granted_at, expires_at)
			select lock, row_number() over (order by lock desc), gen_random_uuid(), case lock when '` + has + `' then 'X' else 'Y' end,
				'exclusive', 1000, clock_timestamp(), clock_timestamp() + interval '1 day' from unnest(array['hot', 'cold']) lock`,
		fmt.Sprintf(`insert into fence.waiters (lock, gateway_id, owner_id, mode, scope, ttl_ms, queued_at, deadline_at)
			select case n when 0 then 'cold' else 'hot' end, '%s', 'waiter ' || n, 'exclusive', 'node', 1000, clock_timestamp(), clock_timestamp() + interval '1 day'
			from generate_series(0, %d) n`, crowdGateway, waiters),
		fmt.Sprintf(`insert into fence.waiters (lock, gateway_id, principal, owner_id, mode, scope, ttl_ms, queued_at, deadline_at)
			select 'theirs ' || n, '%s', 'another', 'X', 'exclusive', 'node', 1000, clock_timestamp(), clock_timestamp() + interval '1 day'
			from generate_series(1, %d) n`, crowdGateway, waiters),
	} {
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
}
