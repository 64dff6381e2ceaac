package embeddedpg

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// readyPause lies between two looks at a server that starts.
const readyPause = 10 * time.Millisecond

// SQLSTATEs of a server that will accept connections soon.
const (
	cannotConnectNow   = "57P03"
	tooManyConnections = "53300"
)

// awaitReady returns when connections are accepted and the database exists, or PostgreSQL has ended, or ctx has.
// It looks at the status in postmaster.pid first: connecting too early would fill the log.
func (c *Cluster) awaitReady(ctx context.Context) error {
	for {
		pid, status := c.layout.postmasterFile()
		if pid == c.PID() && status == statusReady {
			if err := c.ensureDatabase(ctx); !soon(err) {
				return err
			}
		}
		select {
		case <-c.done:
			return fmt.Errorf("PostgreSQL did not start: %w", c.err)
		case <-ctx.Done():
			return fmt.Errorf("PostgreSQL was not ready in time: %w; its log ends:\n%s",
				context.Cause(ctx), logTail(c.layout.log(), c.logStart))
		case <-time.After(readyPause):
		}
	}
}

// ensureDatabase makes the database if it is missing. A standby has what its primary has.
func (c *Cluster) ensureDatabase(ctx context.Context) error {
	config, err := pgx.ParseConfig(c.DatabaseURL("postgres"))
	if err != nil {
		return err
	}
	config.RuntimeParams = map[string]string{"application_name": "fencegate start"} // nothing of PGOPTIONS
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	var present, standby bool
	err = conn.QueryRow(ctx,
		"select exists (select from pg_database where datname = $1), pg_is_in_recovery()", database).Scan(&present, &standby)
	if err != nil || present || standby {
		return err
	}
	_, err = conn.Exec(ctx, "create database "+pgx.Identifier{database}.Sanitize())
	return err
}

// soon reports whether a connection failed as it does while a server starts, or just after it lost a process.
func soon(err error) bool {
	var refused *pgconn.PgError
	if errors.As(err, &refused) {
		return refused.Code == cannotConnectNow || refused.Code == tooManyConnections
	}
	var failed *pgconn.ConnectError
	return errors.As(err, &failed)
}
