package migrations

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// What only the tests need.
var (
	NumberedFiles = numberedFiles

	GatewayFunctions = gatewayFunctions
)

// ApplyWithin is Apply with other bounds of the wait for locks.
func ApplyWithin(ctx context.Context, conn *pgx.Conn, timeout time.Duration, tries int) error {
	_, err := Script{}.apply(ctx, conn, lockBounds{timeout: timeout, pause: time.Millisecond, tries: tries})
	return err
}

// GuardDigest returns the digest of all functions.
func GuardDigest() string { return guardDigest() }

const (
	AdvisoryLock = advisoryLock
	ServesFrom   = servesFrom
)
