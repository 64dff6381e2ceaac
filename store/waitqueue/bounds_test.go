package waitqueue_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/internal/test/testenv/enginetest"
	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/engine"
	"github.com/fencegate/fencegate/store/postgres"
)

// Two thousand callers wait for one lock in one engine. They cost a heartbeat and a poll now and then, as few do. When
// they have left, nothing remains.
func TestManyWaitersCostLittle(t *testing.T) {
	const waiters = 2000
	b := enginetest.New(t)
	before := goleak.IgnoreCurrent()
	goroutines := runtime.NumGoroutine()
	on := enginetest.OpenStore(t, postgres.Config{DatabaseURL: b.URL})
	config := engine.Config{HeartbeatInterval: 200 * time.Millisecond, DeadAfter: time.Minute,
		PollInterval: 200 * time.Millisecond}
	running := enginetest.Run(t, on, config)
	holder, err := on.Acquire(await.Context(t), store.AcquireRequest{Lock: "lock", OwnerID: "holder", TTL: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var waiting sync.WaitGroup
	for i := range waiters {
		waiting.Go(func() {
			_, err := running.Acquire(ctx, store.AcquireRequest{Lock: "lock", OwnerID: fmt.Sprint("waiter ", i),
				Wait: store.WaitMax})
			if !errors.Is(err, context.Canceled) {
				t.Errorf("a waiter got %v", err)
			}
		})
	}
	b.AwaitQueued(t, waiters)
	if n := runtime.NumGoroutine() - goroutines; n > waiters+100 {
		t.Errorf("%d waiters are %d goroutines", waiters, n)
	}

	// A backend reports its transactions late: those of the queueing may be counted in the first intervals. What waiters
	// cost all the time is counted in each of them.
	const statements = "select pg_stat_clear_snapshot(), xact_commit from pg_stat_database where datname = " +
		"current_database()"
	committed := func() (n int) {
		if err := b.SQL.QueryRow(await.Context(t), statements).Scan(nil, &n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	for interval := 0; ; interval++ {
		first, begun := committed(), time.Now()
		time.Sleep(1500 * time.Millisecond)
		done, most := committed()-first, 2*int(time.Since(begun)/config.HeartbeatInterval)+40
		if done <= most {
			break
		}
		if interval == 10 {
			t.Fatalf("%d transactions in %s while nothing happens; want at most %d", done, time.Since(begun), most)
		}
	}

	cancel()
	waiting.Wait()
	if err := on.Release(await.Context(t), holder.Ref()); err != nil {
		t.Error(err)
	}
	await.True(t, "the queue is empty, if need be by a second attempt", func() bool {
		return b.Count(t, "select count(*) from fence.waiters") == 0
	})
	(&enginetest.Engines{DB: b, All: []*enginetest.Running{running}}).ExpectQuiet(t)
	running.Stop()
	on.Close()
	if err := await.Nil(func() error { return goleak.Find(before) }); err != nil {
		t.Error(err)
	}
}

// Callers that begin to wait at the same time share one heartbeat.
func TestWaitersShareAHeartbeat(t *testing.T) {
	t.Parallel()
	const waiters = 200
	b := enginetest.New(t)
	b.Exec(t, "create table public.heartbeats (gateway_id uuid)")
	b.Exec(t, `create function public.count_heartbeat() returns trigger language plpgsql security definer as $$
		begin
			insert into public.heartbeats values (new.gateway_id);
			perform pg_sleep(0.1); -- all callers are there before it is over
			return new;
		end $$`)
	b.Exec(t, `create trigger count_heartbeat before insert or update on fence.gateways
		for each row execute function public.count_heartbeat()`)
	s := newEngines(t, b, 1, engine.Config{HeartbeatInterval: time.Minute, DeadAfter: time.Hour})
	holder := s.Acquire(t, 0, store.AcquireRequest{Lock: "lock", OwnerID: "holder", TTL: time.Hour})
	ctx, cancel := context.WithCancel(await.Context(t))
	var answers []<-chan enginetest.Outcome
	for i := range waiters {
		answers = append(answers, enginetest.GoAcquire(ctx, s.At(0), store.AcquireRequest{
			Lock: "lock", OwnerID: fmt.Sprint("waiter ", i), Wait: store.WaitMax,
		}))
	}
	b.AwaitQueued(t, waiters)
	if n := b.Count(t, "select count(*) from public.heartbeats"); n != 1 {
		t.Errorf("%d callers at the same time sent %d heartbeats, want 1", waiters, n)
	}
	cancel()
	for _, left := range answers {
		<-left
	}
	s.Release(t, 0, holder)
}

// One call grants to a bounded number of readers and reports that more can be claimed; together the calls grant to all.
func TestReadersAreGrantedInBoundedCalls(t *testing.T) {
	t.Parallel()
	b := enginetest.New(t)
	b.Exec(t, "insert into fence.gateways values ($1, clock_timestamp() + interval '1 day')", crowdGateway)
	b.Exec(t, `insert into fence.waiters (lock, gateway_id, owner_id, mode, scope, ttl_ms, queued_at, deadline_at)
		select 'lock', $1, 'reader ' || n, 'shared', 'node', 60000, clock_timestamp(), clock_timestamp() + interval '1 day' from generate_series(1, 450) n`, crowdGateway)
	for call, want := range []string{"200 granted, more", "200 granted, more", "50 granted"} {
		var got string
		err := b.SQL.QueryRow(t.Context(), `
			select count(*) filter (where outcome = 'granted') || ' granted' || case when bool_or(outcome = 'more') then ', more' else '' end
			from fence.grant_next($1, 'lock', 'node')`, crowdGateway).Scan(&got)
		if err != nil || got != want {
			t.Errorf("call %d: %s (%v), want %s", call, got, err, want)
		}
	}
}

// Readers of one engine, more than one call grants to, are all granted after one release.
func TestAllReadersAreGranted(t *testing.T) {
	t.Parallel()
	const readers = 450
	s := newEngines(t, enginetest.New(t), 1, enginetest.NoPoll)
	holder := s.Acquire(t, 0, store.AcquireRequest{Lock: "lock", OwnerID: "holder", TTL: time.Hour})
	var waits []<-chan enginetest.Outcome
	for i := range readers {
		waits = append(waits, enginetest.GoAcquire(await.Context(t), s.At(0),
			store.AcquireRequest{Lock: "lock", OwnerID: fmt.Sprint("reader ", i), Mode: store.Shared, Wait: store.WaitMax}))
	}
	s.AwaitQueued(t, readers)
	s.Release(t, 0, holder)
	for _, wait := range waits {
		enginetest.Granted(t, wait)
	}
}

// A waiter whose lock comes under the authority of another lock service is refused, and granted nothing: at the next
// grant, and without any event by the poll.
func TestWaitersAreRefusedUnderExternalAuthority(t *testing.T) {
	t.Parallel()
	for name, config := range map[string]engine.Config{"release": enginetest.NoPoll,
		"poll": {PollInterval: 20 * time.Millisecond}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newEngines(t, enginetest.New(t), 2, config)
			holder := s.Acquire(t, 0, store.AcquireRequest{Lock: "lock", OwnerID: "holder"})
			var waits []<-chan enginetest.Outcome
			for i := range 4 {
				waits = append(waits, s.Queue(t, i, store.AcquireRequest{Lock: "lock", OwnerID: fmt.Sprint("waiter ", i)}))
			}
			if err := s.PutPolicy(await.Context(t), store.Policy{Prefix: "lock", Rule: store.RuleStrict,
				Authority: store.AuthorityExternal}); err != nil {
				t.Fatal(err)
			}
			if name == "release" {
				s.Release(t, 0, holder)
			}
			for i, wait := range waits {
				if got := enginetest.Answered(t, wait); !errors.Is(got.Err, store.ErrExternalAuthority) {
					t.Errorf("waiter %d got %+v, want ErrExternalAuthority", i, got)
				}
			}
			s.AwaitQueued(t, 0)
		})
	}
}

// The waiters of a gateway that is gone are passed over without a call each: a statement that passes over them reads
// each row once.
func TestDeadWaitersArePassedOver(t *testing.T) {
	t.Parallel()
	s := newEngines(t, enginetest.New(t), 1, enginetest.NoPoll)
	holder := s.Acquire(t, 0, store.AcquireRequest{Lock: "lock", OwnerID: "holder", TTL: time.Hour})
	s.Exec(t, "insert into fence.gateways values ($1, clock_timestamp())", crowdGateway)
	s.Exec(t, `insert into fence.waiters (lock, gateway_id, owner_id, mode, scope, ttl_ms, queued_at, deadline_at)
		select 'lock', $1, 'dead ' || n, 'exclusive', 'node', 60000, clock_timestamp(), clock_timestamp() + interval '1 day' from generate_series(1, 2000) n`, crowdGateway)
	next := enginetest.GoAcquire(await.Context(t), s.At(0),
		store.AcquireRequest{Lock: "lock", OwnerID: "next", Wait: time.Minute})
	s.AwaitQueued(t, 2001)
	tx, err := s.SQL.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var read int
	if _, err := tx.Exec(t.Context(), "select fence.wake('lock', 'node', 0)"); err != nil {
		t.Fatal(err)
	}
	err = tx.QueryRow(t.Context(), "select idx_scan + seq_scan from pg_stat_xact_user_tables where relid = "+
		"'fence.gateways'::regclass").Scan(&read)
	if err := errors.Join(err, tx.Rollback(t.Context())); err != nil || read > 10 {
		t.Errorf("the gateways were looked up %d times (%v) for one wake", read, err)
	}
	s.Release(t, 0, holder)
	enginetest.Granted(t, next)
}
