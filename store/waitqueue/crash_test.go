package waitqueue_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/internal/test/testenv/enginetest"
	pgtest "github.com/fencegate/fencegate/internal/test/testenv/postgres"
	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/engine"
	"github.com/fencegate/fencegate/store/postgres"
)

// durable is something that was answered, and what is to be seen of it.
type durable struct {
	name string
	do   func(t *testing.T, s *engines, lock store.Name)
	seen string // a query of the lock that yields 1
}

var durables = []durable{
	{"a grant", func(t *testing.T, s *engines, lock store.Name) {
		s.Acquire(t, 0, store.AcquireRequest{Lock: lock, OwnerID: "owner"})
	}, "select count(*) from fence.leases where lock = $1 and ended_at is null"},
	{"a grant after waiting", func(t *testing.T, s *engines, lock store.Name) {
		first := s.Acquire(t, 0, store.AcquireRequest{Lock: lock, OwnerID: "first", TTL: time.Hour})
		waiting := s.Queue(t, 1, store.AcquireRequest{Lock: lock, OwnerID: "owner"})
		s.Release(t, 0, first)
		enginetest.Granted(t, waiting)
	}, "select count(*) from fence.leases where lock = $1 and owner_id = 'owner' and ended_at is null"},
	{"a release", func(t *testing.T, s *engines, lock store.Name) {
		s.Release(t, 1, s.Acquire(t, 0, store.AcquireRequest{Lock: lock, OwnerID: "owner"}))
	}, "select count(*) from fence.leases where lock = $1 and end_reason = 'released'"},
	{"a break", func(t *testing.T, s *engines, lock store.Name) {
		s.Acquire(t, 0, store.AcquireRequest{Lock: lock, OwnerID: "owner"})
		if _, err := s.At(1).Break(await.Context(t), lock, "for the test"); err != nil {
			t.Error(err)
		}
	}, "select count(*) from fence.leases where lock = $1 and end_reason = 'broken'"},
	{"the end of a session", func(t *testing.T, s *engines, lock store.Name) {
		session := s.OpenSession(t, 0, "owner", 0)
		s.Acquire(t, 0, store.AcquireRequest{Lock: lock, OwnerID: "owner", SessionID: session.ID})
		if _, err := s.At(1).EndSession(await.Context(t), session.ID); err != nil {
			t.Error(err)
		}
	}, "select count(*) from fence.leases where lock = $1 and end_reason = 'released'"},
}

// What was answered survives a crash right after the answer, though only its own commit brings it to the disk. A
// renewal, a heartbeat and a ticket may be lost: they do not wait for the disk.
func TestAnswersSurviveACrash(t *testing.T) {
	t.Parallel()
	b, cluster := enginetest.NewCrashing(t, pgtest.Setting("wal_writer_delay", "10s"), pgtest.Setting("autovacuum", "off"))
	s := newEngines(t, b, 2, engine.Config{PollInterval: 50 * time.Millisecond, HeartbeatInterval: time.Minute,
		DeadAfter: 10 * time.Minute})
	s.expectOnDisk(t)
	for i, d := range durables {
		lock := store.Name(fmt.Sprint("lock ", i))
		d.do(t, s, lock)
		cluster.Kill()
		cluster.Restart()
		b.SQL.Reset()
		if n := b.Count(t, d.seen, lock); n != 1 {
			t.Errorf("%s was answered, and is lost", d.name)
		}
		if err := enginetest.Insist(func() error {
			_, err := s.At(0).Policies(await.Context(t))
			return err
		}); err != nil {
			t.Fatal(err)
		}
		if err := enginetest.Insist(func() error {
			_, err := s.At(1).Policies(await.Context(t))
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
}

// expectOnDisk looks at how far the log is on the disk right after an answer.
func (s *engines) expectOnDisk(t *testing.T) {
	t.Helper()
	lease := s.Acquire(t, 0, store.AcquireRequest{Lock: "disk", OwnerID: "owner"})
	session := s.OpenSession(t, 0, "owner", 0)
	sweeper := enginetest.NewSweeper(t, s.At(0).Store, postgres.SweeperConfig{})
	for what, do := range map[string]func() error{
		"a sweep":     func() error { _, err := sweeper.Sweep(await.Context(t)); return err },
		"a renewal":   func() error { _, err := s.At(0).Renew(await.Context(t), lease.Ref(), 0); return err },
		"a heartbeat": func() error { _, err := s.At(0).KeepAlive(await.Context(t), session.ID); return err },
		"a ticket": func() error {
			ctx, cancel := context.WithCancel(await.Context(t))
			answers := s.QueueFor(ctx, t, 1, store.AcquireRequest{Lock: "disk", OwnerID: "next"})
			cancel()
			<-answers
			return nil
		},
	} {
		behind := 0
		for range 5 {
			if err := do(); err != nil {
				t.Fatal(err)
			}
			behind += s.Count(t, "select (pg_current_wal_flush_lsn() < pg_current_wal_insert_lsn())::integer")
		}
		if behind == 0 {
			t.Errorf("%s waits for the disk", what)
		}
	}
	s.Release(t, 0, lease)
}
