package migrations

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/tern/v2/migrate"
)

// What only the tests need.
var (
	GuardDigest   = guardDigest
	GuardFiles    = guardFiles
	NumberedFiles = numberedFiles

	GatewayFunctions = gatewayFunctions
)

// ApplyWithin is Apply with other bounds of the wait for locks.
func ApplyWithin(ctx context.Context, conn *pgx.Conn, timeout time.Duration, tries int) error {
	return apply(ctx, conn, lockBounds{timeout: timeout, pause: time.Millisecond, tries: tries},
		func(pgx.Tx) error { return nil })
}

// ApplyNumbered applies the numbered migrations up to one of them, and no functions.
func ApplyNumbered(ctx context.Context, conn *pgx.Conn, version int32) error {
	migrator, err := migrate.NewMigrator(ctx, conn, versionTable)
	if err == nil {
		err = migrator.LoadMigrations(numbered)
	}
	if err == nil {
		err = migrator.MigrateTo(ctx, version)
	}
	return err
}

const AdvisoryLock = advisoryLock
