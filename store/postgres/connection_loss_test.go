package postgres_test

import (
	"errors"
	"testing"

	"github.com/fencegate/fencegate/store"
)

// TestWriteWhoseConnectionIsCut checks that a write whose connection breaks before its answer has an unknown outcome,
// and that the same write, sent again, is applied exactly once (P10).
func TestWriteWhoseConnectionIsCut(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		when  moment
		again string
	}{
		"before the write arrives":    {beforeServer, "admitted v2"},
		"before the answer gets back": {beforeClient, "admitted v2 replayed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newTestbed(t)
			cutter := newCutter(t, b)
			s := &fixture{testbed: b.through(cutter.Through(t)), lock: "lock"}
			if err := s.do(t.Context(), acquire, wrote(with(newest, sequence(1)))); err != nil {
				t.Fatal(err)
			}
			write := with(newest, sequence(2), value("this write is cut"))(s)
			cutter.Cut(c.when, string(write.Value))
			_, err := bySet(t.Context(), s.Store, write)
			if err := expectUnavailable(err, store.OutcomeUnknown); err != nil {
				t.Error(err)
			}
			cutter.Cut(never, "")
			for i, want := range []string{c.again, "admitted v2 replayed"} {
				result, err := bySet(t.Context(), s.Store, write)
				if got := brief(result); err != nil || got != want {
					t.Errorf("sent again, time %d: %s (%v), want %s", i+1, got, err, want)
				}
			}
		})
	}
}

// TestAcquireWhoseConnectionIsCut checks that an acquire whose answer was lost returns the lease that was granted when
// it is sent again with its request_id.
func TestAcquireWhoseConnectionIsCut(t *testing.T) {
	t.Parallel()
	b := newTestbed(t)
	cutter := newCutter(t, b)
	s := &fixture{testbed: b.through(cutter.Through(t)), lock: "lock"}
	if err := s.do(t.Context(), acquire, release); err != nil {
		t.Fatal(err)
	}
	cutter.Cut(beforeClient, "requester")
	if err := expectUnavailable(request("r")(t.Context(), s), store.OutcomeUnknown); err != nil {
		t.Error(err)
	}
	cutter.Cut(never, "")
	if err := s.do(t.Context(), request("r")); err != nil {
		t.Fatal(err)
	}
	leases := b.Count(t, "select count(*) from fence.leases where request_id = 'r'")
	if leases != 1 || s.newest().Token != s.leases[0].Token+1 {
		t.Errorf("%d leases were granted, the newest is %+v", leases, s.newest())
	}
}

// TestOneDeadConnectionDropsTheIdle checks that the end of one connection by the server closes the idle ones, and that
// the store works on.
func TestOneDeadConnectionDropsTheIdle(t *testing.T) {
	t.Parallel()
	b := newTestbed(t)
	s := &fixture{testbed: b, lock: "lock"}
	if err := s.do(t.Context(), acquire); err != nil {
		t.Fatal(err)
	}
	_, unlock := b.LockedBy(t, "lock table fence.records")
	const readers = 2 // as many as have a turn to wait for a lock at the same time
	const waiting = " from pg_stat_activity where application_name = 'fencegate' and datname = current_database() " +
		"and wait_event_type = 'Lock'"
	read := func() error { _, err := b.Record(t.Context(), "lock", "k"); return err }
	reads := make(chan error, readers)
	for range readers {
		go func() { reads <- read() }()
	}
	await(t, "the readers wait for the locked table", func() bool { return b.Count(t, "select count(*)"+waiting) == readers })
	b.Exec(t, "create table public.before as select pid"+waiting)
	b.Exec(t, "select pg_terminate_backend(pid) from public.before limit 1")
	await(t, "the terminated one is gone", func() bool { return b.Count(t, "select count(*)"+waiting) == readers-1 })
	unlock()
	var ended []error
	for range readers {
		if err := <-reads; err != nil && !errors.Is(err, store.ErrNotFound) {
			ended = append(ended, err)
		}
	}
	if len(ended) != 1 || expectUnavailable(ended[0], store.OutcomeUnknown) != nil {
		t.Errorf("the readers got %v, want one whose outcome is unknown", ended)
	}
	await(t, "the connections of before are closed", func() bool {
		return b.Count(t, "select count(*) from public.before join pg_stat_activity using (pid)") == 0
	})
	if err := read(); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("the next read got %v, want ErrNotFound", err)
	}
}
