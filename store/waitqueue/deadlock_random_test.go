package waitqueue_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/internal/test/testenv/enginetest"
	"github.com/fencegate/fencegate/migrations"
	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/engine"
)

// In random states of leases, waiters, modes, scopes and principals with the same owner_ids, a wait is found in a cycle
// if and only if it is in one, and the cycle is one.
func TestDeadlockSearchIsExact(t *testing.T) {
	t.Parallel()
	s := newRandomWaits(t)
	closed, open := 0, 0
	for round := range 40 {
		found := s.expectExact(t, round)
		closed, open = closed+found, open+1-found
		for range 3 {
			s.expectConflicts(t)
		}
	}
	if closed == 0 || open == 0 {
		t.Errorf("of the states %d had a cycle and %d had none: the test shows nothing", closed, open)
	}
}

// TestDeadlockSearchReadsPastAName checks that the search reads a queue past an exclusive wait for one name, if it
// begins at a wait for the subtree or a lease of it, which conflicts with more. The cycle is so long that the search
// from its other end does not find it first.
func TestDeadlockSearchReadsPastAName(t *testing.T) {
	t.Parallel()
	const size = 15
	const lease = `
		insert into fence.leases (
			lock, fencing_token, lease_id, owner_id, mode, scope, ttl_ms, granted_at, expires_at)
		values (
			$1, 1, gen_random_uuid(), $2, 'exclusive', $3, 1000, clock_timestamp(), clock_timestamp() + interval '1 hour')`
	const wait = `insert into fence.waiters (lock, gateway_id, owner_id, mode, scope, ttl_ms, queued_at, deadline_at)
		values ($1, $2, $3, 'exclusive', $4, 1000, clock_timestamp(), clock_timestamp() + interval '1 hour')`
	for _, c := range []struct{ has, hasScope, wants, wantsScope string }{
		{"tree/below", "node", "tree", "subtree"},
		{"tree", "subtree", "tree/below", "node"},
	} {
		t.Run(c.has, func(t *testing.T) {
			t.Parallel()
			s := newRandomWaits(t)
			s.Exec(t, "insert into fence.fences (resource, subtree_token) values ('tree', 0)")
			s.Exec(t, lease, c.has, "owner 0", c.hasScope)
			s.Exec(t, wait, "tree", crowdGateway, "in no cycle", "node")
			s.Exec(t, wait, c.wants, crowdGateway, fmt.Sprint("owner ", size), c.wantsScope)
			for i := range size {
				s.Exec(t, lease, fmt.Sprint(i), fmt.Sprint("owner ", i+1), "node")
				s.Exec(t, wait, fmt.Sprint(i), crowdGateway, fmt.Sprint("owner ", i), "node")
			}
			e := edgesIn(t, s.DB)
			for ticket, owner := range e.owner {
				if found := expectCycle(t, s.DB, e, ticket); found == strings.HasSuffix(owner, "in no cycle") {
					t.Errorf("the wait of %s is in a cycle: %v", owner, found)
				}
			}
		})
	}
}

// If each wait is checked when it begins, and those found are refused, there is never a cycle. The waits of a gateway
// that count again are in none once they were checked.
func TestDeadlocksAreFound(t *testing.T) {
	t.Parallel()
	s := newRandomWaits(t)
	begun, thawed := 0, 0
	for range 60 {
		beginning, thawing := s.refuseAll(t)
		begun, thawed = begun+beginning, thawed+thawing
	}
	if begun == 0 || thawed == 0 {
		t.Errorf("%d waits were refused when they began and %d after a thaw: the test shows nothing", begun, thawed)
	}
}

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
		const sql = `select outcome from fence.acquire_lease(fence.lease_request($1, $2, 'exclusive', 'node', 1000, null, null, null), 60000, $3, true)`
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
	s := newEngines(t, enginetest.New(t), 1, enginetest.NoPoll)
	source, _ := migrations.GuardSource("find_deadlocks")
	s.Exec(t, strings.Replace(source, "\nbegin\n", `
		begin
			if p_begun then
				raise exception 'no short search ever succeeds' using errcode = 'query_canceled';
			end if;`, 1))
	leases := [2]store.Lease{
		s.Acquire(t, 0, store.AcquireRequest{Lock: "left", OwnerID: "owner 0"}),
		s.Acquire(t, 0, store.AcquireRequest{Lock: "right", OwnerID: "owner 1"}),
	}
	waits := [2]<-chan enginetest.Outcome{s.Queue(t, 0, store.AcquireRequest{Lock: "right", OwnerID: "owner 0"})}
	waits[1] = enginetest.GoAcquire(await.Context(t), s.At(0),
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
					from fence.acquire_lease(fence.lease_request($1, 'X', 'exclusive', 'node', 1000, null, null, null), 60000, $2, true) a)`,
					locks[1], crowdGateway).Scan(&tickets),
				tx.QueryRow(t.Context(), "select count(*) from fence.find_deadlocks($1, true)", tickets).Scan(&read))
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
