package waitqueue_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/internal/test/testenv/enginetest"
	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/engine"
)

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
