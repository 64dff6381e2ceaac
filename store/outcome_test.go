package store_test

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

	"github.com/fencegate/fencegate/internal/enginetest"
	"github.com/fencegate/fencegate/internal/pgtest"
	"github.com/fencegate/fencegate/migrations"
	"github.com/fencegate/fencegate/store"
)

// whileFenceIsLocked sends a plain write that waits for its fence, and meanwhile does something that ends the wait.
func whileFenceIsLocked(t *testing.T, s *stage, through *store.Store, meanwhile func() error) error {
	t.Helper()
	var writeErr error
	err := whileBlocked(t.Context(), s.testbed, s.lock, func() error {
		_, writeErr = bySet(t.Context(), through, with(newest)(s))
		return nil
	}, meanwhile)
	if err != nil {
		t.Fatal(err)
	}
	return writeErr
}

// blockedBackends ends or cancels what waits for a lock.
func blockedBackends(ctx context.Context, b *testbed, function string) error {
	_, err := b.sql.Exec(ctx,
		"select "+function+"(pid) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'")
	return err
}

// A statement that the server has given up left nothing behind, and says so.
func TestNotApplied(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		config store.Config
		call   func(context.Context, *stage, *store.Store) error
	}{
		"statement timeout": {store.Config{StatementTimeout: 100 * time.Millisecond}, func(ctx context.Context, s *stage, through *store.Store) error {
			_, err := bySet(ctx, through, with(newest)(s))
			return err
		}},
		"lock timeout": {store.Config{LockTimeout: 100 * time.Millisecond}, func(ctx context.Context, s *stage, through *store.Store) error {
			return through.Release(ctx, s.newest().Ref())
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &stage{testbed: newTestbed(t), lock: "lock"}
			if err := s.do(t.Context(), acquire); err != nil {
				t.Fatal(err)
			}
			c.config.DatabaseURL = s.url
			through := openStore(t, c.config)
			tx, err := s.sql.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer tx.Rollback(t.Context()) //nolint:errcheck // it changes nothing
			if _, err := tx.Exec(t.Context(), "select from fence.fences for update"); err != nil {
				t.Fatal(err)
			}
			if err := expectUnavailable(c.call(t.Context(), s, through), store.OutcomeNotApplied); err != nil {
				t.Error(err)
			}
			if err := errors.Join(tx.Rollback(t.Context()), s.do(t.Context(), wrote(with(newest)))); err != nil {
				t.Errorf("sent again: %v", err)
			}
		})
	}
}

func TestCancelledStatement(t *testing.T) {
	t.Parallel()
	s := &stage{testbed: newTestbed(t), lock: "lock"}
	if err := s.do(t.Context(), acquire); err != nil {
		t.Fatal(err)
	}
	err := whileFenceIsLocked(t, s, s.Store, func() error { return blockedBackends(t.Context(), s.testbed, "pg_cancel_backend") })
	if err := expectUnavailable(err, store.OutcomeNotApplied); err != nil {
		t.Error(err)
	}
	if err := s.do(t.Context(), wrote(with(newest))); err != nil {
		t.Errorf("sent again: %v", err)
	}
}

// alterDatabase makes a setting hold for all sessions that begin from now on.
func alterDatabase(t *testing.T, b *testbed, setting string) {
	t.Helper()
	b.exec(t, `do $$ begin execute format('alter database %I set `+strings.ReplaceAll(setting, "'", "''")+`', current_database()); end $$`)
}

func TestReadOnlyDatabase(t *testing.T) {
	t.Parallel()
	s := &stage{testbed: newTestbed(t), lock: "lock"}
	if err := s.do(t.Context(), acquire); err != nil {
		t.Fatal(err)
	}
	alterDatabase(t, s.testbed, "default_transaction_read_only = on")
	through := openStore(t, store.Config{DatabaseURL: s.url})
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
		"ready": func() error { return through.Ready(ctx) },
	}
	for name, call := range calls {
		if err := s.unchanged(ctx, func() error { return expectUnavailable(call(), store.OutcomeNotApplied) }); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if lock, err := through.Lock(ctx, s.lock); err != nil || lock.State != store.LockHeld {
		t.Errorf("the lock is %+v (%v): reading still works", lock, err)
	}
}

// A session that was ended may have been about to commit: nothing is said of the write.
func TestTerminatedBackend(t *testing.T) {
	t.Parallel()
	s := &stage{testbed: newTestbed(t), lock: "lock"}
	if err := s.do(t.Context(), acquire); err != nil {
		t.Fatal(err)
	}
	err := whileFenceIsLocked(t, s, s.Store, func() error { return blockedBackends(t.Context(), s.testbed, "pg_terminate_backend") })
	if err := expectUnavailable(err, store.OutcomeUnknown); err != nil {
		t.Error(err)
	}
	if err := s.do(t.Context(), wrote(with(newest))); err != nil {
		t.Errorf("sent again: %v", err)
	}
}

// Nor is anything said of a write whose caller did not wait for the answer.
func TestCallerGoesAway(t *testing.T) {
	t.Parallel()
	s := &stage{testbed: newTestbed(t), lock: "lock"}
	if err := s.do(t.Context(), acquire); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	err := whileBlocked(t.Context(), s.testbed, s.lock, func() error {
		_, err := bySet(ctx, s.Store, with(newest)(s))
		return expectUnavailable(err, store.OutcomeUnknown)
	}, func() error { cancel(); return nil })
	if err != nil {
		t.Error(err)
	}
	_, err = bySet(ctx, s.Store, with(newest)(s))
	if err := expectUnavailable(err, store.OutcomeNotApplied); err != nil {
		t.Errorf("by a caller who had gone before: %v", err)
	}
}

func TestUnmigratedDatabase(t *testing.T) {
	t.Parallel()
	fresh, ctx := openStore(t, store.Config{DatabaseURL: pgtest.Empty(t)}), t.Context()
	calls := map[string]func() error{
		"acquire": func() error { _, err := fresh.Acquire(ctx, store.AcquireRequest{Lock: "a", OwnerID: "w"}); return err },
		"write": func() error {
			_, err := bySet(ctx, fresh, with(token(1))(&stage{lock: "a"}))
			return err
		},
		"lock":  func() error { _, err := fresh.Lock(ctx, "a"); return err },
		"ready": func() error { return fresh.Ready(ctx) },
	}
	for name, call := range calls {
		err := call()
		if !errors.Is(err, store.ErrNotMigrated) {
			t.Errorf("%s: %v, want ErrNotMigrated", name, err)
		}
		if err := expectUnavailable(err, store.OutcomeNotApplied); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := errors.Join(fresh.Migrate(ctx), fresh.Ready(ctx)); err != nil {
		t.Fatal(err)
	}
	if _, err := fresh.Acquire(ctx, store.AcquireRequest{Lock: "a", OwnerID: "w"}); err != nil {
		t.Error(err)
	}
}

// A database that a newer program has migrated is not for this one.
func TestNewerDatabase(t *testing.T) {
	t.Parallel()
	b := newTestbed(t)
	b.exec(t, "update fence.guard_revision set revision = revision + 1")
	err := b.Ready(t.Context())
	if err := expectUnavailable(err, store.OutcomeNotApplied); err != nil {
		t.Error(err)
	}
	for _, err := range []error{err, b.Migrate(t.Context())} {
		if !errors.Is(err, migrations.ErrNewer) {
			t.Errorf("the answer is %v, want ErrNewer", err)
		}
	}
}

// Where nothing was sent, nothing was applied.
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
	config := missing.sql.Config().ConnConfig
	for name, url := range map[string]string{
		"connection refused": "host=" + dir + " port=5432 user=postgres dbname=x sslmode=disable",
		"no such socket":     "host=" + filepath.Join(dir, "none") + " user=postgres dbname=x sslmode=disable",
		"no such database":   strings.Replace(missing.url, config.Database, config.Database+"_gone", 1),
	} {
		s := &stage{testbed: (&testbed{DB: &enginetest.DB{}}).through(openStore(t, store.Config{DatabaseURL: url})), lock: "lock"}
		_, writeErr := bySet(t.Context(), s.Store, with(token(1))(s))
		for call, err := range map[string]error{
			"write": writeErr, "ready": s.Ready(t.Context()), "migrate": s.Migrate(t.Context()), "await": s.Await(t.Context(), time.Millisecond),
		} {
			if err := expectUnavailable(err, store.OutcomeNotApplied); err != nil {
				t.Errorf("%s, %s: %v", name, call, err)
			}
		}
	}
}

// Await returns when the database has come up.
func TestAwait(t *testing.T) {
	t.Parallel()
	b := newTestbed(t)
	admin, err := pgxpool.New(t.Context(), pgtest.Empty(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(admin.Close)
	name := b.sql.Config().ConnConfig.Database
	through := openStore(t, store.Config{DatabaseURL: b.url})
	b.Close()
	b.sql.Close()
	if _, err := admin.Exec(t.Context(), fmt.Sprintf("alter database %q allow_connections false", name)); err != nil {
		t.Fatal(err)
	}
	if err := expectUnavailable(through.Ready(t.Context()), store.OutcomeNotApplied); err != nil {
		t.Errorf("a database that takes no connections: %v", err)
	}
	awaited := make(chan error, 1)
	go func() { awaited <- through.Await(t.Context(), time.Minute) }()
	if _, err := admin.Exec(t.Context(), fmt.Sprintf("alter database %q allow_connections true", name)); err != nil {
		t.Fatal(err)
	}
	if err := <-awaited; err != nil {
		t.Error(err)
	}
}
