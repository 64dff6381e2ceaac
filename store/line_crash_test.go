package store_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"github.com/fencegate/fencegate/internal/pgtest"
	"github.com/fencegate/fencegate/store"
)

// newCrashbed is a testbed on a cluster that may be killed.
func newCrashbed(t *testing.T, options ...pgtest.Option) (*testbed, *pgtest.Cluster) {
	t.Helper()
	cluster := pgtest.NewCluster(t, options...)
	sql, err := pgxpool.New(t.Context(), cluster.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(sql.Close)
	b := &testbed{openStore(t, store.Config{DatabaseURL: cluster.URL()}), cluster.URL(), sql}
	if err := b.Migrate(patient(t)); err != nil {
		t.Fatal(err)
	}
	return b, cluster
}

// insist sends again what the database was not there for.
func insist(what func() error) (err error) {
	for deadline := time.Now().Add(soon); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if err = what(); !errors.Is(err, store.ErrUnavailable) {
			return err
		}
	}
	return err
}

// The database crashes while hundreds wait: all of them are served in the end. Nothing is left over, neither of leases nor of goroutines.
func TestDatabaseCrashesWithWaiters(t *testing.T) {
	b, cluster := newCrashbed(t)
	before := goleak.IgnoreCurrent()
	s := &services{testbed: b}
	var stores []*store.Store
	for range 3 {
		on := openStore(t, store.Config{DatabaseURL: b.url, ConnectionsMax: 8})
		stores = append(stores, on)
		s.all = append(s.all, runService(t, on, store.ServiceConfig{Beat: 50 * time.Millisecond, Missing: time.Second, Poll: 50 * time.Millisecond}))
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	holder := s.acquire(t, 0, store.AcquireRequest{Lock: "lock", OwnerID: "holder", TTL: time.Hour})
	var waiting sync.WaitGroup
	for i := range 200 {
		random := rand.New(rand.NewPCG(seed, uint64(i)))
		request := store.AcquireRequest{
			Lock: "lock", OwnerID: fmt.Sprint("waiter ", i), Wait: store.WaitMax, TTL: time.Hour,
			Mode: []store.Mode{store.Exclusive, store.Shared}[random.IntN(2)],
		}
		waiting.Go(func() {
			lease, err := s.at(i).Acquire(context.Background(), request)
			if err != nil {
				t.Errorf("%s was told %v", request.OwnerID, err)
				return
			}
			time.Sleep(time.Duration(random.IntN(2000)) * time.Microsecond)
			renew := func() error {
				_, err := s.at(i+1).Renew(context.Background(), lease.Ref(), 0)
				return err
			}
			release := func() error { return s.at(i+1).Release(context.Background(), lease.Ref()) }
			if err := errors.Join(insist(renew), insist(release)); err != nil {
				t.Errorf("%s was granted token %d, and then: %v", request.OwnerID, lease.Token, err)
			}
		})
	}
	s.awaitQueued(t, 200)
	cluster.Kill()
	cluster.Restart()
	if err := insist(func() error { return s.at(0).Release(patient(t), holder.Ref()) }); err != nil {
		t.Error(err)
	}
	await(t, "the first are served", func() bool { return s.Waiting() < 190 })
	cluster.Kill()
	cluster.Restart()
	waiting.Wait()
	if n := b.count(t, besideSQL); n != 0 {
		t.Errorf("%d leases ran beside each other", n)
	}
	s.expectQuiet(t)
	for i := range s.all {
		s.all[i].stop()
		stores[i].Close()
	}
	b.sql.Reset()
	cluster.Kill() // which is waited for by a goroutine
	if err := goleak.Find(before); err != nil {
		t.Error(err)
	}
}

// Waiting is how many wait in all Services.
func (s *services) Waiting() (n int) {
	for _, service := range s.all {
		n += service.Waiting()
	}
	return n
}

// durable is something that was answered, and what is to be seen of it.
type durable struct {
	name string
	do   func(t *testing.T, s *services, lock store.Name)
	seen string // a query of the lock that yields 1
}

var durables = []durable{
	{"a grant", func(t *testing.T, s *services, lock store.Name) {
		s.acquire(t, 0, store.AcquireRequest{Lock: lock, OwnerID: "owner"})
	}, "select count(*) from fence.leases where lock = $1 and ended_at is null"},
	{"a grant after waiting", func(t *testing.T, s *services, lock store.Name) {
		s.acquire(t, 0, store.AcquireRequest{Lock: lock, OwnerID: "first", TTL: 100 * time.Millisecond})
		granted(t, s.queue(t, 1, store.AcquireRequest{Lock: lock, OwnerID: "owner"}))
	}, "select count(*) from fence.leases where lock = $1 and owner_id = 'owner' and ended_at is null"},
	{"a release", func(t *testing.T, s *services, lock store.Name) {
		s.release(t, 1, s.acquire(t, 0, store.AcquireRequest{Lock: lock, OwnerID: "owner"}))
	}, "select count(*) from fence.leases where lock = $1 and end_reason = 'released'"},
	{"a break", func(t *testing.T, s *services, lock store.Name) {
		s.acquire(t, 0, store.AcquireRequest{Lock: lock, OwnerID: "owner"})
		if _, err := s.at(1).Break(patient(t), lock, "for the test"); err != nil {
			t.Error(err)
		}
	}, "select count(*) from fence.leases where lock = $1 and end_reason = 'broken'"},
	{"the end of a session", func(t *testing.T, s *services, lock store.Name) {
		session := s.session(t, 0, "owner", 0)
		s.acquire(t, 0, store.AcquireRequest{Lock: lock, OwnerID: "owner", SessionID: session.ID})
		if _, err := s.at(1).EndSession(patient(t), session.ID); err != nil {
			t.Error(err)
		}
	}, "select count(*) from fence.leases where lock = $1 and end_reason = 'released'"},
}

// What was answered survives a crash right after the answer, though nothing else than its own commit brings it to the disk. A renewal, a heartbeat and
// a place in a line may be lost: they do not wait for the disk.
func TestWhatWasAnsweredSurvivesACrash(t *testing.T) {
	t.Parallel()
	b, cluster := newCrashbed(t, pgtest.Setting("wal_writer_delay", "10s"), pgtest.Setting("autovacuum", "off"))
	s := newServices(t, b, 2, store.ServiceConfig{Poll: 50 * time.Millisecond, Beat: time.Minute, Missing: 10 * time.Minute})
	s.expectOnDisk(t)
	for i, d := range durables {
		lock := store.Name(fmt.Sprint("lock ", i))
		d.do(t, s, lock)
		cluster.Kill()
		cluster.Restart()
		b.sql.Reset()
		if n := b.count(t, d.seen, lock); n != 1 {
			t.Errorf("%s was answered, and is lost", d.name)
		}
		if err := insist(func() error { return s.at(0).Ready(patient(t)) }); err != nil {
			t.Fatal(err)
		}
		if err := insist(func() error { return s.at(1).Ready(patient(t)) }); err != nil {
			t.Fatal(err)
		}
	}
}

// expectOnDisk looks at how far the log is on the disk right after an answer.
func (s *services) expectOnDisk(t *testing.T) {
	t.Helper()
	lease := s.acquire(t, 0, store.AcquireRequest{Lock: "disk", OwnerID: "owner"})
	session := s.session(t, 0, "owner", 0)
	for what, do := range map[string]func() error{
		"a renewal":   func() error { _, err := s.at(0).Renew(patient(t), lease.Ref(), 0); return err },
		"a heartbeat": func() error { _, err := s.at(0).KeepAlive(patient(t), session.ID); return err },
		"a place": func() error {
			ctx, giveUp := context.WithCancel(patient(t))
			answers := s.queueFor(ctx, t, 1, store.AcquireRequest{Lock: "disk", OwnerID: "next"})
			giveUp()
			<-answers
			return nil
		},
	} {
		behind := 0
		for range 5 {
			if err := do(); err != nil {
				t.Fatal(err)
			}
			behind += s.count(t, "select (pg_current_wal_flush_lsn() < pg_current_wal_insert_lsn())::integer")
		}
		if behind == 0 {
			t.Errorf("%s waits for the disk", what)
		}
	}
	s.release(t, 0, lease)
}
