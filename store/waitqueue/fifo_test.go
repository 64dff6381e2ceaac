package waitqueue_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencegate/fencegate/internal/test/spec"
	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/internal/test/testenv/enginetest"
	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/engine"
)

// churn is many acquires of one lock through all engines: readers and writers, some of which leave, and tries in
// between.
type churn struct {
	*engines
	lock store.Name
}

// one waits, holds what it is granted for a moment, and gives it back, unless it is lost. It must have it all that time.
func (c *churn) one(t *testing.T, index int, random *rand.Rand) {
	request := store.AcquireRequest{Lock: c.lock, OwnerID: fmt.Sprint("waiter ", index), Wait: store.WaitMax,
		Mode: store.Exclusive, TTL: time.Hour} // so that a lease which nobody has blocks the others
	if random.IntN(3) == 0 {
		request.Mode = store.Shared
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*await.Limit)
	defer cancel()
	stays := false
	switch random.IntN(10) {
	case 0, 1:
		time.AfterFunc(time.Duration(random.IntN(300))*time.Millisecond, cancel)
	case 2:
		request.Wait = time.Duration(1+random.Int64N(int64(impatience/time.Millisecond))) * time.Millisecond
	default:
		stays = true
	}
	lost := random.IntN(30) == 0 // the lease expires, and only the timer of a waiter's engine notices
	if lost {
		request.TTL = store.TTLMin
	}
	hold := time.Duration(random.IntN(1000)) * time.Microsecond
	lease, err := c.At(index).Acquire(ctx, request)
	switch {
	case err == nil:
		if time.Sleep(hold); !lost {
			c.giveBack(t, index+1, lease)
		}
	case lost && errors.Is(err, store.ErrLeaseLost): // before the answer came
	case stays || !errors.Is(err, store.ErrLeaseHeld) && !errors.Is(err, context.Canceled):
		t.Errorf("%s got %v", request.OwnerID, err)
	}
}

// giveBack releases a lease through another engine. It must still be the holder's.
func (c *churn) giveBack(t *testing.T, index int, lease store.Lease) {
	_, err := c.At(index).Renew(context.Background(), lease.Ref(), 0)
	if err == nil {
		err = c.At(index).Release(context.Background(), lease.Ref())
	}
	if err != nil {
		t.Errorf("%s was granted token %d, and then: %v", lease.OwnerID, lease.Token, err)
	}
}

// tries acquires without waiting again and again, until ctx ends.
func (c *churn) tries(ctx context.Context, t *testing.T, index int) {
	for i := 0; ctx.Err() == nil; i++ {
		request := store.AcquireRequest{Lock: c.lock, OwnerID: fmt.Sprintf("try %d of %d", i, index),
			Mode: []store.Mode{store.Exclusive, store.Shared}[i%2]}
		lease, err := c.At(index).Acquire(context.Background(), request)
		switch {
		case err == nil:
			c.giveBack(t, index+1, lease)
		case !errors.Is(err, store.ErrLeaseHeld):
			t.Errorf("a try got %v", err)
		}
		time.Sleep(time.Millisecond)
	}
}

// run returns when all have been served.
func (c *churn) run(t *testing.T, waiters int) {
	t.Helper()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	trying, stop := context.WithCancel(context.Background())
	defer stop()
	var waiting, tries sync.WaitGroup
	for index := range c.All {
		tries.Go(func() { c.tries(trying, t, index) })
	}
	for index := range waiters {
		random := rand.New(rand.NewPCG(seed, uint64(index)))
		waiting.Go(func() { c.one(t, index, random) })
		if index%8 == 0 {
			time.Sleep(time.Millisecond)
		}
	}
	waiting.Wait()
	stop()
	tries.Wait()
	await.True(t, "the leases that were lost expire", func() bool {
		return c.Count(t, "select count(*) from fence.leases where ended_at is null and expires_at > clock_timestamp()") == 0
	})
}

// Acquires are granted first come, first served over all engines, by notifications alone, whichever waiters leave and
// whichever tries come in between.
func TestFirstComeFirstServed(t *testing.T) {
	t.Parallel()
	c := &churn{engines: newEngines(t, enginetest.New(t), 3, enginetest.NoPoll), lock: "lock"}
	c.recordDecisions(t)
	c.run(t, 300)
	if queued, granted := c.expectOrder(t, c.lock); queued < 100 || granted < 100 {
		t.Errorf("only %d waited, and %d were granted the lock", queued, granted)
	}
	c.ExpectQuiet(t)
}

// outage is how notifications are lost.
type outage struct {
	name   string
	config engine.Config
	pause  time.Duration // between two cuts of the connections
	cuts   int           // at most
}

// The same holds while the connections for notifications are cut: no waiter loses its ticket, and no owner a lease that
// it was granted. In one case there is polling and next to no notification; in the other, reconnecting alone makes up
// for what was missed.
func TestFirstComeFirstServedWithoutNotifications(t *testing.T) {
	t.Parallel()
	for _, o := range []outage{
		{"polling", engine.Config{PollInterval: 20 * time.Millisecond}, 5 * time.Millisecond, 1 << 20},
		{"reconnecting", enginetest.NoPoll, 200 * time.Millisecond, 4},
	} {
		t.Run(o.name, func(t *testing.T) {
			t.Parallel()
			c := &churn{engines: newEngines(t, enginetest.New(t), 3, o.config), lock: "lock"}
			c.recordDecisions(t)
			ctx, stop := context.WithCancel(context.Background())
			broken := make(chan int)
			go func() {
				n := 0
				for i := 0; i < o.cuts && ctx.Err() == nil; i++ {
					n += c.BreakListeners(t)
					time.Sleep(o.pause)
				}
				broken <- n
			}()
			c.run(t, 150)
			stop()
			if n := <-broken; n < 3 {
				t.Errorf("the connections were cut %d times", n)
			}
			c.expectOrder(t, c.lock)
			c.ExpectQuiet(t)
		})
	}
}

// recordDecisions has the database record what it decides about all locks from now on. Who queues, leaves or grants has
// the fence locked, and a grant waits for the end of the lease before it, so rows get their ids in the order of decisions.
func (s *engines) recordDecisions(t *testing.T) {
	t.Helper()
	s.Exec(t, `
		create table decisions (id bigint generated always as identity, kind text, code text, of jsonb);
		create function decision() returns trigger language plpgsql as $$
		begin
			insert into public.decisions (kind, code, of) values (tg_argv[0], tg_argv[1], to_jsonb(coalesce(new, old)));
			return null;
		end $$;
		create trigger queued after insert on fence.waiters for each row execute function decision('acquire', 'queued');
		create trigger gone after delete on fence.waiters for each row execute function decision('leave', 'done');
		create trigger granted after insert on fence.leases for each row execute function decision('acquire', 'granted');
		create trigger ended after update of ended_at on fence.leases for each row
			when (old.ended_at is null and new.ended_at is not null) execute function decision('expire', 'done')`)
}

// decisions are those about a lock.
func (s *engines) decisions(t *testing.T, lock store.Name) []spec.Call {
	t.Helper()
	rows, err := s.SQL.Query(await.Context(t), `
		select d.kind, d.code, r.lock, r.owner_id, coalesce(r.request_id, ''), r.mode, r.scope,
			coalesce(extract(epoch from r.deadline_at - r.queued_at) * 1000, 0)::bigint, coalesce(r.fencing_token, 0), coalesce(r.lease_id, gen_random_uuid()),
			coalesce(extract(epoch from r.granted_at) * 1000000, 0)::bigint, coalesce(extract(epoch from coalesce(r.ended_at, r.expires_at)) * 1000000, 0)::bigint
		from decisions d, jsonb_to_record(d.of) r (lock text, owner_id text, request_id text, mode text, scope text, deadline_at timestamptz, queued_at timestamptz,
			fencing_token bigint, lease_id uuid, granted_at timestamptz, expires_at timestamptz, ended_at timestamptz)
		where r.lock = $1 order by d.id`, lock)
	if err != nil {
		t.Fatal(err)
	}
	calls, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (call spec.Call, err error) {
		var waitMS int64
		op, chosen := &call.Op, &call.Chosen
		err = row.Scan(&op.Kind, &call.Answer.Code, &op.Name, &op.Owner, &op.Request, &op.Mode, &op.Scope, &waitMS,
			&chosen.Token, &chosen.ID, &chosen.GrantedAt, &chosen.Until)
		op.Wait, op.Token = time.Duration(waitMS)*time.Millisecond, chosen.Token
		if op.Wait > impatience { // the time before it was queued is no longer in it
			op.Wait = store.WaitMax
		}
		return call, err
	})
	if err != nil {
		t.Fatal(err)
	}
	return calls
}

// impatience is the longest wait of an acquire that may be passed.
const impatience = 300 * time.Millisecond

// expectOrder fails the test if the decisions about a lock are not those of the contract.
func (s *engines) expectOrder(t *testing.T, lock store.Name) (queued, granted int) {
	t.Helper()
	decided := s.decisions(t, lock)
	if err := spec.InOrder(spec.State{}, decided); err != nil {
		t.Error(err)
	}
	for _, call := range decided {
		switch call.Answer.Code {
		case spec.CodeQueued:
			queued++
		case spec.CodeGranted:
			granted++
		}
	}
	return queued, granted
}
