package migrations

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

const undefinedTable = "42P01"

// prereleaseTables are the version tables of programs from before the first release, whose numbers mean other files.
var prereleaseTables = []string{"fence.schema_version", "fence.migration_version"}

// SkewError means that the schema is of an older or newer program. It wraps ErrNotMigrated or
// ErrNewer.
type SkewError struct {
	// Serves says that this program can serve with the schema nevertheless.
	Serves            bool
	version, revision int
	err               error
}

func (e *SkewError) Error() string { return e.err.Error() }

func (e *SkewError) Unwrap() error { return e.err }

// Check returns nil if this program can serve with the schema: it is this program's, or that of a version next to it.
// Otherwise, it returns an error of Compare.
func Check(ctx context.Context, conn Querier) error {
	err := Compare(ctx, conn)
	if skew, ok := errors.AsType[*SkewError](err); ok && skew.Serves {
		return nil
	}
	return err
}

// Compare returns nil if the schema is this program's; a SkewError if it is missing, older or newer; ErrPrerelease if it
// is of before the first release or has other functions of this revision; or the database's error.
func Compare(ctx context.Context, conn Querier) error {
	newest := len(numberedFiles())
	// One statement finds that all is right, as it is once a second; the others say what is wrong.
	current, err := readNumber(ctx, conn, fmt.Sprintf("select (version = %d and revision = %d and digest = '%s')::integer "+
		"from %s, fence.guard_revision", newest, GuardRevision, guardDigest(), versionTable))
	if err != nil || current == 1 {
		return err
	}
	if err := checkReleased(ctx, conn); err != nil {
		return err
	}
	var version, revision, serves, same int
	for sql, number := range map[string]*int{
		"select version from " + versionTable:                                          &version,
		"select revision from fence.guard_revision":                                    &revision,
		"select serves_from from fence.guard_revision":                                 &serves,
		"select (digest = '" + guardDigest() + "')::integer from fence.guard_revision": &same,
	} {
		if *number, err = readNumber(ctx, conn, sql); err != nil {
			return err
		}
	}
	how := "fencegate migrate"
	switch extension, err := madeByExtension(ctx, conn); {
	case err != nil:
		return err
	case extension:
		how = "alter extension fencegate update"
	}
	skew := &SkewError{version: version, revision: revision}
	switch {
	case version > newest || revision > GuardRevision:
		skew.Serves = serves <= GuardRevision
		skew.err = fmt.Errorf("%w: it has %s, this program knows %s; run the newer one", ErrNewer, skew.schema(), programs())
	case version < newest || revision < GuardRevision:
		skew.Serves = version > 0 && revision >= worksFrom
		skew.err = fmt.Errorf("%w: it has %s, this program needs %s; run `%s`", ErrNotMigrated, skew.schema(), programs(), how)
	case same == 1:
		return nil
	default:
		return errPrerelease(ctx, conn)
	}
	return skew
}

// schema names the schema that is there.
func (e *SkewError) schema() string { return named(e.version, e.revision) }

// programs names the schema of this program.
func programs() string { return named(len(numberedFiles()), GuardRevision) }

func named(version, revision int) string {
	return fmt.Sprintf("schema version %d and functions revision %d", version, revision)
}

// Querier is what Check needs of a connection or a pool.
type Querier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// checkReleased returns ErrPrerelease if the schema has only a version table of programs from before the release.
func checkReleased(ctx context.Context, conn Querier) error {
	var older bool
	err := conn.QueryRow(ctx, "select to_regclass($1) is null and count(to_regclass(name)) > 0 from unnest($2::text[]) name",
		versionTable, prereleaseTables).Scan(&older)
	switch {
	case err != nil:
		return fmt.Errorf("look for the schema: %w", err)
	case older:
		return errPrerelease(ctx, conn)
	}
	return nil
}

// errPrerelease says how to replace the schema so that holders from before stay fenced off: tokens may be ahead of the
// clock, so it names the last one.
func errPrerelease(ctx context.Context, conn Querier) error {
	last, err := readNumber(ctx, conn, "select last_value from fence.tokens")
	if err != nil {
		return errors.Join(ErrPrerelease, err)
	}
	return fmt.Errorf("%w: its schema cannot be migrated; end all gateways, use a new database or delete the data with "+
		"`drop schema fence cascade`, and run `fencegate migrate --tokens-above %d`, so that old tokens stay rejected",
		ErrPrerelease, last)
}

// madeByExtension is whether the extension fencegate made the schema. Then only its scripts change it.
func madeByExtension(ctx context.Context, conn Querier) (bool, error) {
	made, err := readNumber(ctx, conn, "select count(*) from pg_extension where extname = 'fencegate'")
	return made > 0, err
}

// readNumber reads a number; it is 0 if its table, or the row in it, does not exist yet.
func readNumber(ctx context.Context, conn Querier, sql string) (int, error) {
	var number int
	err := conn.QueryRow(ctx, sql).Scan(&number)
	var pgErr *pgconn.PgError
	if errors.Is(err, pgx.ErrNoRows) || (errors.As(err, &pgErr) && pgErr.Code == undefinedTable) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read the schema's version: %w", err)
	}
	return number, nil
}

// suits returns ErrUnsuitable where this program cannot use the database.
func suits(ctx context.Context, conn *pgx.Conn) error {
	_, err := conn.Exec(ctx, suitable)
	if failed, ok := errors.AsType[*pgconn.PgError](err); ok && failed.Code == "0A000" { // feature_not_supported
		return fmt.Errorf("%w: %s", ErrUnsuitable, failed.Message)
	}
	return err
}
