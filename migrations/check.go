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

// Check returns nil if the schema is this program's, ErrNotMigrated if it is missing or older, ErrNewer if it is
// newer, ErrPrerelease if it is of before the first release or has other functions of this revision, or the database's
// error.
func Check(ctx context.Context, conn Querier) error { return check(ctx, conn, false) }

// check is Check, or the same for the core; a schema with all functions has the core.
func check(ctx context.Context, conn Querier, core bool) error {
	newest := int64(len(numberedFiles()))
	// One statement finds that all is right, as it is once a second; the others say what is wrong.
	current, err := readNumber(ctx, conn, fmt.Sprintf("select (version = %d and revision = %d and digest = '%s')::integer "+
		"from %s, fence.guard_revision", newest, GuardRevision, guardDigest(core), versionTable))
	if err != nil || current == 1 {
		return err
	}
	if err := checkReleased(ctx, conn); err != nil {
		return err
	}
	version, err := readNumber(ctx, conn, "select version from "+versionTable)
	if err != nil {
		return err
	}
	revision, err := readNumber(ctx, conn, "select revision from fence.guard_revision")
	if err != nil {
		return err
	}
	const all, onlyCore = 1, 2
	functions, err := readNumber(ctx, conn, fmt.Sprintf("select case digest when '%s' then %d when '%s' then %d else 0 end "+
		"from fence.guard_revision", guardDigest(false), all, guardDigest(true), onlyCore))
	if err != nil {
		return err
	}
	how := "fencegate migrate"
	switch extension, err := madeByExtension(ctx, conn); {
	case err != nil:
		return err
	case extension:
		how = "alter extension fencegate update"
	}
	switch {
	case version > newest || revision > GuardRevision:
		return fmt.Errorf("%w: it has schema version %d and functions revision %d, "+
			"this program knows %d and %d; run the newer one",
			ErrNewer, version, revision, newest, GuardRevision)
	case version < newest || revision < GuardRevision:
		return fmt.Errorf("%w: it has schema version %d and functions revision %d, "+
			"this program needs %d and %d; run `%s`",
			ErrNotMigrated, version, revision, newest, GuardRevision, how)
	case functions == onlyCore:
		return fmt.Errorf("%w: it has only the core (`fencegate migrate --core`); run `fencegate migrate`", ErrNotMigrated)
	case functions != all:
		return errPrerelease(ctx, conn)
	}
	return nil
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
func readNumber(ctx context.Context, conn Querier, sql string) (int64, error) {
	var number int64
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
