package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencegate/fencegate/internal/test/testenv/enginetest"
	pgtest "github.com/fencegate/fencegate/internal/test/testenv/postgres"
	"github.com/fencegate/fencegate/migrations"
	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/postgres"
)

// TestTimeoutsAreNotApplied checks that a statement that the server gave up is not applied, and that the error says so.
func TestTimeoutsAreNotApplied(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		config postgres.Config
		call   func(context.Context, *fixture, *postgres.Store) error
	}{
		"statement timeout": {postgres.Config{StatementTimeout: 100 * time.Millisecond},
			func(ctx context.Context, s *fixture, through *postgres.Store) error {
				_, err := bySet(ctx, through, with(newest)(s))
				return err
			}},
		"lock timeout": {postgres.Config{LockTimeout: 100 * time.Millisecond},
			func(ctx context.Context, s *fixture, through *postgres.Store) error {
				return through.Release(ctx, s.newest().Ref())
			}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newFixture(t, acquire)
			c.config.DatabaseURL = s.URL
			through := openStore(t, c.config)
			unlock := s.hold(t, "select from fence.fences for update")
			if err := expectUnavailable(c.call(t.Context(), s, through), store.OutcomeNotApplied); err != nil {
				t.Error(err)
			}
			unlock()
			if err := s.do(t.Context(), wrote(with(newest))); err != nil {
				t.Errorf("the write, sent again: %v", err)
			}
		})
	}
}

// TestOutcomeOfAWaitingWrite checks the outcome of a write that ends while it waits for its fence. A cancelled
// statement was not applied. A session that was terminated, or whose answer was not awaited, may have been about to
// commit.
func TestOutcomeOfAWaitingWrite(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		end     string // what ends the wait: a function of PostgreSQL, or "" for the caller's context
		outcome store.Outcome
	}{
		"statement cancelled": {"pg_cancel_backend", store.OutcomeNotApplied},
		"session terminated":  {"pg_terminate_backend", store.OutcomeUnknown},
		"caller gone":         {"", store.OutcomeUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newFixture(t, acquire)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			returned := make(chan struct{})
			err := s.whileFenceIsLocked(t.Context(), s.lock, func() error {
				_, err := bySet(ctx, s.Store, with(newest)(s))
				close(returned)
				return expectUnavailable(err, c.outcome)
			}, func() error {
				if c.end == "" {
					cancel()
					<-returned // before the fence is free
					return nil
				}
				_, err := s.SQL.Exec(t.Context(), "select "+c.end+`(pid) from pg_stat_activity
					where datname = current_database() and wait_event_type = 'Lock'`)
				return err
			})
			if err != nil {
				t.Error(err)
			}
			if c.end == "" {
				_, err = bySet(ctx, s.Store, with(newest)(s))
				if err := expectUnavailable(err, store.OutcomeNotApplied); err != nil {
					t.Errorf("a write with a context that has ended: %v", err)
				}
			} else if err := s.do(t.Context(), wrote(with(newest))); err != nil {
				t.Errorf("the write, sent again: %v", err)
			}
		})
	}
}

// probe probes a database once, on a new connection.
func probe(ctx context.Context, s *postgres.Store) error {
	probe, err := s.OpenProbe(ctx)
	if err != nil {
		return err
	}
	defer probe.Close()
	return probe.Commit(ctx)
}

// alterDatabase makes a setting hold for all sessions that begin from now on.
func alterDatabase(t *testing.T, b *testbed, setting string) {
	t.Helper()
	b.Exec(t, `do $$ begin execute format('alter database %I set `+strings.ReplaceAll(setting, "'",
		"''")+`', current_database()); end $$`)
}

// TestReadOnlyDatabase checks that a read-only database answers reads, and refuses changes as not applied.
func TestReadOnlyDatabase(t *testing.T) {
	t.Parallel()
	s := newFixture(t, acquire)
	alterDatabase(t, s.testbed, "default_transaction_read_only = on")
	through := openStore(t, postgres.Config{DatabaseURL: s.URL})
	ctx := t.Context()
	calls := map[string]func() error{
		"write": func() error { _, err := bySet(ctx, through, with(newest)(s)); return err },
		"acquire": func() error {
			_, err := through.Acquire(ctx, store.AcquireRequest{Lock: "b", OwnerID: "w"})
			return err
		},
		"renew":   func() error { _, err := through.Renew(ctx, s.newest().Ref(), 0); return err },
		"release": func() error { return through.Release(ctx, s.newest().Ref()) },
		"policy": func() error {
			return through.PutPolicy(ctx, store.Policy{Rule: store.RuleStrict, Authority: store.AuthorityBuiltin})
		},
		"ready": func() error { return probe(ctx, through) },
	}
	for name, call := range calls {
		if err := s.Unchanged(ctx, func() error { return expectUnavailable(call(), store.OutcomeNotApplied) }); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if lock, err := through.Lock(ctx, s.lock); err != nil || lock.State != store.LockHeld {
		t.Errorf("the lock is read as %+v (%v), want it held", lock, err)
	}
}

// TestUnmigratedDatabase checks that calls on an empty database fail with ErrNotMigrated until it is migrated.
func TestUnmigratedDatabase(t *testing.T) {
	t.Parallel()
	fresh, ctx := openStore(t, postgres.Config{DatabaseURL: pgtest.Empty(t)}), t.Context()
	calls := map[string]func() error{
		"acquire": func() error { _, err := fresh.Acquire(ctx, store.AcquireRequest{Lock: "a", OwnerID: "w"}); return err },
		"write": func() error {
			_, err := bySet(ctx, fresh, with(token(1))(&fixture{lock: "a"}))
			return err
		},
		"lock":  func() error { _, err := fresh.Lock(ctx, "a"); return err },
		"ready": func() error { return probe(ctx, fresh) },
	}
	for name, call := range calls {
		err := call()
		if !errors.Is(err, migrations.ErrNotMigrated) {
			t.Errorf("%s: %v, want ErrNotMigrated", name, err)
		}
		if err := expectUnavailable(err, store.OutcomeNotApplied); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := errors.Join(fresh.Migrate(ctx), probe(ctx, fresh)); err != nil {
		t.Fatal(err)
	}
	if _, err := fresh.Acquire(ctx, store.AcquireRequest{Lock: "a", OwnerID: "w"}); err != nil {
		t.Error(err)
	}
}

// TestNewerDatabase checks that a database that a newer program has migrated is refused.
func TestNewerDatabase(t *testing.T) {
	t.Parallel()
	b := newTestbed(t)
	b.Exec(t, "update fence.guard_revision set revision = revision + 1, serves_from = revision + 1")
	err := probe(t.Context(), b.Store)
	if err := expectUnavailable(err, store.OutcomeNotApplied); err != nil {
		t.Error(err)
	}
	for _, err := range []error{err, b.Migrate(t.Context())} {
		if !errors.Is(err, migrations.ErrNewer) {
			t.Errorf("the answer is %v, want ErrNewer", err)
		}
	}
}

// TestUnreachableDatabase checks that calls without a connection are not applied.
func TestUnreachableDatabase(t *testing.T) {
	t.Parallel()
	// A socket that nobody listens at any more refuses connections.
	dir, err := os.MkdirTemp("", "fg") // t.TempDir may be longer than the path of a socket can be
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, ".s.PGSQL.5432"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	listener.SetUnlinkOnClose(false)
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}

	missing := newTestbed(t)
	config := missing.SQL.Config().ConnConfig
	for name, url := range map[string]string{
		"connection refused": "host=" + dir + " port=5432 user=postgres dbname=x sslmode=disable",
		"no such socket":     "host=" + filepath.Join(dir, "none") + " user=postgres dbname=x sslmode=disable",
		"no such database":   strings.Replace(missing.URL, config.Database, config.Database+"_gone", 1),
	} {
		s := &fixture{testbed: (&testbed{DB: &enginetest.DB{}}).through(openStore(t, postgres.Config{DatabaseURL: url})),
			lock: "lock"}
		_, writeErr := bySet(t.Context(), s.Store, with(token(1))(s))
		for call, err := range map[string]error{
			"write": writeErr, "ready": probe(t.Context(), s.Store), "migrate": s.Migrate(t.Context()),
			"await": s.Await(t.Context(), time.Millisecond, func(error) {}),
		} {
			if err := expectUnavailable(err, store.OutcomeNotApplied); err != nil {
				t.Errorf("%s, %s: %v", name, call, err)
			}
		}
	}
}

// TestAwait checks that Await returns when the database has come up.
func TestAwait(t *testing.T) {
	t.Parallel()
	b := newTestbed(t)
	admin, err := pgxpool.New(t.Context(), pgtest.Empty(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(admin.Close)
	name := b.SQL.Config().ConnConfig.Database
	through := openStore(t, postgres.Config{DatabaseURL: b.URL})
	b.Close()
	b.SQL.Close()
	if _, err := admin.Exec(t.Context(), fmt.Sprintf("alter database %q allow_connections false", name)); err != nil {
		t.Fatal(err)
	}
	if err := expectUnavailable(probe(t.Context(), through), store.OutcomeNotApplied); err != nil {
		t.Errorf("a database that takes no connections: %v", err)
	}
	awaited := make(chan error, 1)
	go func() { awaited <- through.Await(t.Context(), time.Minute, func(error) {}) }()
	if _, err := admin.Exec(t.Context(), fmt.Sprintf("alter database %q allow_connections true", name)); err != nil {
		t.Fatal(err)
	}
	if err := <-awaited; err != nil {
		t.Error(err)
	}
}

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
	patient := openStore(t, postgres.Config{DatabaseURL: b.URL, LockTimeout: time.Minute, StatementTimeout: time.Minute})
	const releases = 2 // as many as have a turn to wait for a lock at the same time
	var leases []store.Lease
	for i := range releases {
		leases = append(leases, b.granted(t, store.AcquireRequest{Lock: numbered("lock", i), OwnerID: "w"}))
	}
	_, unlock := b.LockedBy(t, "select from fence.fences for update")
	const waiting = " from pg_stat_activity where application_name = 'fencegate' and datname = current_database() " +
		"and wait_event_type = 'Lock' and query_start < clock_timestamp() - interval '500 ms'" // not its first, short wait
	ends := make(chan error, releases)
	for _, lease := range leases {
		go func() { ends <- patient.Release(t.Context(), lease.Ref()) }()
	}
	await(t, "the releases wait for the fences", func() bool { return b.Count(t, "select count(*)"+waiting) == releases })
	b.Exec(t, "create table public.before as select pid"+waiting)
	b.Exec(t, "select pg_terminate_backend(pid) from public.before limit 1")
	await(t, "the terminated one is gone", func() bool { return b.Count(t, "select count(*)"+waiting) == releases-1 })
	unlock()
	var ended []error
	for range releases {
		if err := <-ends; err != nil {
			ended = append(ended, err)
		}
	}
	if len(ended) != 1 || expectUnavailable(ended[0], store.OutcomeUnknown) != nil {
		t.Errorf("the releases got %v, want one whose outcome is unknown", ended)
	}
	await(t, "the connections of before are closed", func() bool {
		return b.Count(t, "select count(*) from public.before join pg_stat_activity using (pid)") == 0
	})
	for _, lease := range leases {
		if err := patient.Release(t.Context(), lease.Ref()); err != nil {
			t.Errorf("the release sent again: %v", err)
		}
	}
}
