package migrations

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
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

const AdvisoryLock = advisoryLock
