package migrations

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

var (
	// ErrNotMigrated means that the schema is missing or older than this program.
	ErrNotMigrated = errors.New("the database is not migrated")
	// ErrNewer means that a newer program has migrated the schema; this one must not change it.
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
// gives up before they do, and tries again after a pause in which they continue.
type lockBounds struct {
	timeout, pause time.Duration
	tries          int
}

var defaultBounds = lockBounds{timeout: 200 * time.Millisecond, pause: 800 * time.Millisecond, tries: 30}

// Apply brings the schema of the database that conn is connected to up to this program's: first the numbered
// migrations, in one transaction, then the functions, in another. Safe to call from any number of processes at once,
// and quick when there is nothing to do. It does nothing, either, to a newer schema that this program can serve
// with. It returns ErrNewer, ErrPrerelease or ErrUnsuitable, in which case nothing was changed; ErrLocked, in which
// case it can be called again; or the database's error. It waits for other transactions for 200 ms at most at a
// time, and writes wait behind it. Writes also wait while it builds indexes, which takes seconds for millions of
// locks.
//
// conn should be used for nothing else: Apply holds a session lock on it while it works.
func Apply(ctx context.Context, conn *pgx.Conn) error {
	_, err := Script{}.Apply(ctx, conn)
	return err
}

// Apply is the function Apply for this script, and says what it did. It finds out the version by itself, and gives no
// rights. It returns ErrNewer for a newer schema in which tokens are to jump, too.
func (s Script) Apply(ctx context.Context, conn *pgx.Conn) (did string, err error) {
	return s.apply(ctx, conn, defaultBounds)
}

func (s Script) apply(ctx context.Context, conn *pgx.Conn, bounds lockBounds) (did string, err error) {
	if err := suits(ctx, conn); err != nil {
		return "", err
	}
	err = exclusively(ctx, conn, func() error {
		err := Compare(ctx, conn)
		if err == nil {
			did = "the schema is up to date: " + programs()
			return run(ctx, conn, s.end())
		}
		skew, ok := errors.AsType[*SkewError](err)
		if ok && skew.Serves && errors.Is(err, ErrNewer) && s.TokensAbove == nil {
			did = fmt.Sprintf("nothing was changed: a newer fencegate made %s, and this program can use it", skew.schema())
			return nil
		}
		extension, failed := madeByExtension(ctx, conn)
		if extension || failed != nil || !errors.Is(err, ErrNotMigrated) {
			return errors.Join(err, failed)
		}
		did = fmt.Sprintf("made %d functions and views: %s", len(functions()), programs())
		if skew.version > 0 {
			did += "; before: " + skew.schema()
		}
		return s.migrate(ctx, conn, skew.version, bounds)
	})
	return did, err
}

// migrate makes the tables before the functions, in a transaction of its own: gateways wait for changed tables until its
// commit, and to replace the functions takes a second where the machine is busy. The functions that are there work on
// newer tables.
func (s Script) migrate(ctx context.Context, conn *pgx.Conn, from int, bounds lockBounds) error {
	in := func(pieces []piece) error {
		return bounds.retry(ctx, func() error { return run(ctx, conn, slices.Concat(s.start(bounds.timeout), pieces)) })
	}
	newest := len(numberedFiles())
	if s.Version = from; from < newest {
		if err := in(s.tables()); err != nil {
			return err
		}
	}
	s.Version = newest
	return in(s.functions())
}

// run runs the pieces in one transaction.
func run(ctx context.Context, conn *pgx.Conn, pieces []piece) error {
	return pgx.BeginTxFunc(ctx, conn, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		for _, piece := range pieces {
			if _, err := tx.Exec(ctx, piece.sql); err != nil {
				return fmt.Errorf("migrate, %s: %w", piece.name, err)
			}
		}
		return nil
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

func numberedFiles() []string { return must(fs.Glob(numbered, "*.sql")) }

// function is a function or a view of the schema: fence.<name>. sql makes it, after a comment on it.
type function struct{ folder, name, sql string }

var definition = regexp.MustCompile(`(?m)^create or replace (?:function|view) fence\.(\w+)`)

// functions are those of guard/, by folder and name: they are made in this order. In a file, an empty line and a comment
// begin the next one.
var functions = sync.OnceValue(func() (all []function) {
	for _, file := range must(fs.Glob(guard, "guard/*/*.sql")) {
		for i, sql := range strings.Split(strings.TrimSpace(string(must(guard.ReadFile(file)))), "\n\n-- ") {
			if i > 0 {
				sql = "-- " + sql
			}
			all = append(all, function{path.Base(path.Dir(file)), definition.FindStringSubmatch(sql)[1], sql})
		}
	}
	slices.SortFunc(all, func(a, b function) int {
		return cmp.Or(cmp.Compare(a.folder, b.folder), cmp.Compare(a.name, b.name))
	})
	return all
})

// must is for embedded files: they exist, or the program would not have been built.
func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

// GuardSource returns the text that makes fence.<name>; ok is false if there is none. Tests use it to break a function on
// purpose.
func GuardSource(name string) (source string, ok bool) {
	for _, f := range functions() {
		if f.name == name {
			return f.sql, true
		}
	}
	return "", false
}

// Functions returns the names of all functions and views, by folder. Tests use it.
func Functions() (names []string) {
	for _, f := range functions() {
		names = append(names, f.name)
	}
	return names
}
