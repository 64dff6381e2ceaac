package store_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencegate/fencegate/store"
)

// soon bounds every wait for what should happen at once; noise of the machine must never come near it.
const soon = 30 * time.Second

// noPoll is for tests of what wakes: the net below the notifications is out of reach.
var noPoll = store.ServiceConfig{Poll: time.Hour}

// services are several on one database, each with connections of its own.
type services struct {
	*testbed
	all []*runningService
}

type runningService struct {
	*store.Service
	stop func() // ends Run, and waits for that; the places stay in their lines
}

func newServices(t *testing.T, b *testbed, count int, config store.ServiceConfig) *services {
	t.Helper()
	s := &services{testbed: b}
	for range count {
		s.all = append(s.all, runService(t, openStore(t, store.Config{DatabaseURL: b.url, ConnectionsMax: 8}), config))
	}
	return s
}

// runService returns when the Service listens.
func runService(t *testing.T, on *store.Store, config store.ServiceConfig) *runningService {
	t.Helper()
	r := startService(t, on, config)
	await(t, "the service listens", r.Listening)
	return r
}

func startService(t *testing.T, on *store.Store, config store.ServiceConfig) *runningService {
	t.Helper()
	service, err := store.NewService(on, config)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		service.Run(ctx, func(err error) {
			// What the faults of the tests cause is in these errors, too; what may not be is a defect of the statements.
			if state := err.Error(); strings.Contains(state, "40P01") || strings.Contains(state, "42") && !errors.Is(err, store.ErrUnavailable) {
				t.Errorf("the service says: %v", err)
			}
		})
	})
	stop := sync.OnceFunc(func() {
		cancel()
		running.Wait()
	})
	t.Cleanup(stop)
	return &runningService{service, stop}
}

func (s *services) at(place int) *runningService { return s.all[place%len(s.all)] }

// await polls for what nothing tells.
func await(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(soon); !holds(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never happened: %s", what)
		}
	}
}

// patient is a context that ends long after everything should have happened.
func patient(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), soon)
	t.Cleanup(cancel)
	return ctx
}

// count reads one number beside the Services.
func (b *testbed) count(t *testing.T, sql string, args ...any) (n int) {
	t.Helper()
	if err := b.sql.QueryRow(patient(t), sql, args...).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// awaitQueued returns when so many stand in the lines of all locks.
func (b *testbed) awaitQueued(t *testing.T, count int) {
	t.Helper()
	await(t, fmt.Sprintf("%d wait", count), func() bool { return b.count(t, "select count(*) from fence.waiters") == count })
}

// expectQuiet is the end of all: nobody waits, no lease runs, and PostgreSQL has resolved no deadlock of its own.
func (s *services) expectQuiet(t *testing.T) {
	t.Helper()
	for i, service := range s.all {
		if n := service.Waiting(); n != 0 {
			t.Errorf("%d still wait in service %d", n, i)
		}
	}
	for what, sql := range map[string]string{
		"places in lines":      "select count(*) from fence.waiters",
		"leases that run":      "select count(*) from fence.leases l where l.ended_at is null and fence.runs_until(l) > clock_timestamp()",
		"deadlocks within SQL": "select deadlocks from pg_stat_database where datname = current_database()",
	} {
		if n := s.count(t, sql); n != 0 {
			t.Errorf("there are %d %s", n, what)
		}
	}
}

// outcome is what an acquire was told.
type outcome struct {
	lease store.Lease
	err   error
}

// goAcquire asks in the background.
func goAcquire(ctx context.Context, on *runningService, request store.AcquireRequest) <-chan outcome {
	answers := make(chan outcome, 1)
	go func() {
		lease, err := on.Acquire(ctx, request)
		answers <- outcome{lease, err}
	}()
	return answers
}

// queue asks in the background, and returns when the request stands in the line behind all before it.
func (s *services) queue(t *testing.T, place int, request store.AcquireRequest) <-chan outcome {
	t.Helper()
	return s.queueFor(patient(t), t, place, request)
}

func (s *services) queueFor(ctx context.Context, t *testing.T, place int, request store.AcquireRequest) <-chan outcome {
	t.Helper()
	if request.Wait == 0 {
		request.Wait = store.WaitMax
	}
	before := s.count(t, "select count(*) from fence.waiters where owner_id = $1 and lock = $2", request.OwnerID, request.Lock)
	answers := goAcquire(ctx, s.at(place), request)
	await(t, request.OwnerID+" waits", func() bool {
		return s.count(t, "select count(*) from fence.waiters where owner_id = $1 and lock = $2", request.OwnerID, request.Lock) > before
	})
	return answers
}

func (s *services) acquire(t *testing.T, place int, request store.AcquireRequest) store.Lease {
	t.Helper()
	lease, err := s.at(place).Acquire(patient(t), request)
	if err != nil {
		t.Fatal(err)
	}
	return lease
}

func (s *services) release(t *testing.T, place int, lease store.Lease) {
	t.Helper()
	if err := s.at(place).Release(patient(t), lease.Ref()); err != nil {
		t.Fatal(err)
	}
}

// granted expects a lease.
func granted(t *testing.T, answers <-chan outcome) store.Lease {
	t.Helper()
	got := answered(t, answers)
	if got.err != nil {
		t.Fatal(got.err)
	}
	return got.lease
}

func answered(t *testing.T, answers <-chan outcome) outcome {
	t.Helper()
	select {
	case got := <-answers:
		return got
	case <-time.After(soon):
		t.Fatal("it was never answered")
		return outcome{}
	}
}

// unanswered expects that it waits.
func unanswered(t *testing.T, answers <-chan outcome) {
	t.Helper()
	select {
	case got := <-answers:
		t.Fatalf("it did not wait: %+v", got)
	default:
	}
}

// describe is who has what and who waits for what, for the one who has to find out why.
func (b *testbed) describe(t *testing.T) (text string) {
	t.Helper()
	const sql = `select string_agg(line, e'\n') from (
		select format('%s has %s %s %s until %s', owner_id, lock, mode, scope, fence.runs_until(l)) from fence.leases l where ended_at is null
		union all (
			select format('%s waits for %s %s %s with ticket %s at %s, counts %s', owner_id, lock, mode, scope, ticket, gateway_id, fence.is_waiting(w))
			from fence.waiters w order by ticket)) as lines (line)`
	if err := b.sql.QueryRow(patient(t), sql).Scan(&text); err != nil {
		t.Error(err)
	}
	return text
}
