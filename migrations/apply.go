package migrations

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/tern/v2/migrate"
)

var (
	// ErrNotMigrated means that the schema is missing or older than this program.
	ErrNotMigrated = errors.New("the database is not migrated")
	// ErrNewer means that a newer program has migrated the schema; this one must not touch it.
	ErrNewer = errors.New("the database was migrated by a newer fencegate")
	// ErrPrerelease means that a program from before the first release made the schema. It cannot be migrated.
	ErrPrerelease = errors.New("the database was made by a fencegate from before its first release")
	// ErrLocked means that an open transaction holds a lock that a migration needs.
	ErrLocked = errors.New("another transaction holds a lock that the migration needs")
	// ErrUnsuitable means that fencegate cannot use this database, whatever schema it has.
	ErrUnsuitable = errors.New("the database does not suit fencegate")
)

const (
	// versionTable has the number of the last file that was applied.
	versionTable = "fence.tables_version"

	// advisoryLock serializes gateways that start at the same time. The number is "fence" in ASCII.
	advisoryLock = 0x66656e6365

	lockNotAvailable = "55P03"
)

// lockBounds bound the wait for the locks of other transactions. Writes queue behind a migration that waits, so it
// gives up soon, and tries again after a pause in which they continue.
type lockBounds struct {
	timeout, pause time.Duration
	tries          int
}

var defaultBounds = lockBounds{timeout: 2 * time.Second, pause: time.Second, tries: 10}

// Apply brings the schema of the database that conn is connected to up to this program's: first the numbered
// migrations, then the functions. Safe to call from any number of processes at once, and quick when there is nothing to
// do. It returns ErrNewer, ErrPrerelease or ErrUnsuitable, in which case nothing was changed; ErrLocked, in which case
// it can be called again; or the database's error. It waits for other transactions for 2 s at most at a time, and writes
// wait behind it. Writes also wait while it builds indexes, which takes seconds for millions of locks.
//
// conn should be used for nothing else: Apply holds a session lock on it while it works.
func Apply(ctx context.Context, conn *pgx.Conn) error {
	return apply(ctx, conn, defaultBounds, func(pgx.Tx) error { return nil })
}

// ApplyAbove is Apply for a schema that replaces another one. In the transaction that makes the functions, so before any
// grant, tokens jump past above and past all that any database can have issued until now (fence.accept_database). They
// jump in a schema that is up to date, too.
func ApplyAbove(ctx context.Context, conn *pgx.Conn, above int64) error {
	return apply(ctx, conn, defaultBounds, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "select fence.accept_database($1)", above); err != nil {
			return fmt.Errorf("make the tokens jump: %w", err)
		}
		return nil
	})
}

func apply(ctx context.Context, conn *pgx.Conn, bounds lockBounds, finish func(pgx.Tx) error) error {
	if err := suits(ctx, conn); err != nil {
		return err
	}
	return exclusively(ctx, conn, func() error {
		switch err := Check(ctx, conn); {
		case err == nil:
			return pgx.BeginFunc(ctx, conn, finish)
		case !errors.Is(err, ErrNotMigrated):
			return err
		}
		if _, err := conn.Exec(ctx, "create schema if not exists fence"); err != nil {
			return fmt.Errorf("create schema fence: %w", err)
		}
		return bounds.retry(ctx, func() error {
			if err := applyNumbered(ctx, conn, bounds.timeout); err != nil {
				return err
			}
			return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
				if err := applyGuard(ctx, tx, bounds.timeout); err != nil {
					return err
				}
				return finish(tx)
			})
		})
	})
}

// retry calls change until it does not fail for a lock. It returns ErrLocked after the last try.
func (b lockBounds) retry(ctx context.Context, change func() error) error {
	for try := 1; ; try++ {
		err := change()
		var pgErr *pgconn.PgError
		switch {
		case !errors.As(err, &pgErr) || pgErr.Code != lockNotAvailable:
			return err
		case try == b.tries:
			return fmt.Errorf("%w; end transactions that are open for long (pg_stat_activity), and try again: %w",
				ErrLocked, err)
		}
		select {
		case <-time.After(b.pause):
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		}
	}
}

// setLockTimeout bounds the waits of the running transaction.
func setLockTimeout(ctx context.Context, conn Querier, timeout time.Duration) error {
	return conn.QueryRow(ctx, "select set_config('lock_timeout', $1, true)", fmt.Sprint(timeout.Milliseconds())).
		Scan(new(string))
}

// exclusively calls change while no other process changes the schema.
func exclusively(ctx context.Context, conn *pgx.Conn, change func() error) error {
	if _, err := conn.Exec(ctx, "select pg_advisory_lock($1)", int64(advisoryLock)); err != nil {
		return fmt.Errorf("wait for other migrations: %w", err)
	}
	err := change()
	_, unlockErr := conn.Exec(ctx, "select pg_advisory_unlock($1)", int64(advisoryLock))
	return errors.Join(err, unlockErr)
}

func applyNumbered(ctx context.Context, conn *pgx.Conn, lockTimeout time.Duration) error {
	migrator, err := migrate.NewMigrator(ctx, conn, versionTable)
	if err != nil {
		return fmt.Errorf("prepare the migrations: %w", err)
	}
	if err := migrator.LoadMigrations(numbered); err != nil {
		return fmt.Errorf("load the migrations: %w", err)
	}
	// The migrator resets the session's settings after each migration.
	var unset error
	migrator.OnStart = func(int32, string, string, string) {
		unset = errors.Join(unset, setParsing(ctx, conn), setLockTimeout(ctx, conn, lockTimeout))
	}
	if err := errors.Join(migrator.Migrate(ctx), unset); err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	return nil
}

// setParsing sets the session's settings that change how the SQL of this package is parsed. With other settings, a
// pattern in the schema could lose its backslashes.
func setParsing(ctx context.Context, conn *pgx.Conn) error {
	_, err := conn.Exec(ctx, "set standard_conforming_strings = on; set transform_null_equals = off")
	return err
}

// applyGuard replaces the functions, also those of protected tables, while no table becomes protected. Bodies are
// checked when they first run, so the files need no order. It revokes all rights of public.
func applyGuard(ctx context.Context, tx pgx.Tx, lockTimeout time.Duration) error {
	const begin = `
		set local check_function_bodies = off;
		set local standard_conforming_strings = on;
		lock table fence.protected_tables in share row exclusive mode;`
	if err := setLockTimeout(ctx, tx, lockTimeout); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, begin); err != nil {
		return fmt.Errorf("lock the protected tables: %w", err)
	}
	for _, file := range guardFiles() {
		if err := replace(ctx, tx, file); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
	}
	const finish = `
		revoke all on schema fence from public;
		revoke all on all tables in schema fence from public;
		revoke all on all sequences in schema fence from public;
		revoke all on all functions in schema fence from public;
		do $$ declare v_type regtype; begin
			for v_type in select oid from pg_type where typnamespace = 'fence'::regnamespace and typcategory <> 'A' loop
				execute format('revoke all on type %s from public', v_type);
			end loop; end $$;
		select fence.remake_trigger_functions();
		insert into fence.database_identity (system_identifier, timeline, tokens_oid, started_at)
		select r.system_identifier, r.timeline, r.tokens_oid, r.started_at from fence.running_database() r
		on conflict do nothing`
	if _, err := tx.Exec(ctx, finish); err != nil {
		return fmt.Errorf("close the schema: %w", err)
	}
	_, err := tx.Exec(ctx, `
		insert into fence.guard_revision (revision, digest) values ($1, $2)
		on conflict (only_row) do update set revision = excluded.revision, digest = excluded.digest`,
		GuardRevision, guardDigest())
	if err != nil {
		return fmt.Errorf("record the functions' revision: %w", err)
	}
	return nil
}

// replace replaces the function or view of a file. It leaves a view alone that is the same already: to replace it takes
// a lock that waits for all transactions that have used the view.
func replace(ctx context.Context, tx pgx.Tx, file string) error {
	source := string(must(guard.ReadFile(file)))
	if path.Base(path.Dir(file)) == "view" {
		view := "fence." + strings.TrimSuffix(path.Base(file), ".sql")
		candidate := view + "_candidate"
		sql := strings.Replace(source, "create or replace view "+view+" as", "create view "+candidate+" as", 1)
		if _, err := tx.Exec(ctx, sql); err != nil {
			return err
		}
		var same bool
		const compare = "select pg_get_viewdef($1::text::regclass) is not distinct from pg_get_viewdef(to_regclass($2))"
		if err := tx.QueryRow(ctx, compare, candidate, view).Scan(&same); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, "drop view "+candidate); err != nil || same {
			return err
		}
	}
	_, err := tx.Exec(ctx, source)
	return err
}

// guardDigest returns the SHA-256 of the text of all functions.
var guardDigest = sync.OnceValue(func() string {
	hash := sha256.New()
	for _, file := range guardFiles() {
		hash.Write(must(guard.ReadFile(file)))
	}
	return hex.EncodeToString(hash.Sum(nil))
})

func numberedFiles() []string { return must(fs.Glob(numbered, "*.sql")) }

func guardFiles() []string { return must(fs.Glob(guard, "guard/*/*.sql")) }

// must is for embedded files: they exist, or the program would not have been built.
func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

// GuardSource returns the text of the file in guard/ that makes fence.<name>; ok is false if there is none. Tests use
// it to break a function on purpose.
func GuardSource(name string) (source string, ok bool) {
	for _, file := range guardFiles() {
		if path.Base(file) == name+".sql" {
			return strings.TrimSpace(string(must(guard.ReadFile(file)))), true
		}
	}
	return "", false
}
