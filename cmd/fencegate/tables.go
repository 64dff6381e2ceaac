package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencegate/fencegate/migrations"
)

// tablesCmds are the commands below "fencegate tables".
type tablesCmds struct {
	Ls        tablesLsCmd `cmd:"" default:"withargs" help:"List the protected tables."`
	Observe   tableCmd    `cmd:"" help:"Reject no write to a table any more, and record what would be rejected."`
	Enforce   tableCmd    `cmd:"" help:"Reject writes to a table again that are not under the fence."`
	Unprotect tableCmd    `cmd:"" help:"End the protection of a table: drop its triggers."`
}

// tablesTimeout bounds what a command does besides waiting for other transactions.
const tablesTimeout = time.Minute

type tablesLsCmd struct {
	databaseFlags
	outputFlag
}

// Run lists protected tables.
func (c *tablesLsCmd) Run(ctx context.Context, con *console) error {
	if err := con.format.many(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, tablesTimeout)
	defer cancel()
	return c.connect(ctx, con, func(conn *pgx.Conn) error {
		tables, err := migrations.Tables(ctx, conn)
		if err != nil {
			return tableError(err)
		}
		return list(con, []string{"TABLE", "TEMPLATE", "MODE", "PROBLEM"}, tables, func(t migrations.Table) []string {
			return []string{t.Table, t.Template, t.Mode, t.Problem}
		})
	})
}

// tableCmd changes a table as its name in tablesCmds says.
type tableCmd struct {
	databaseFlags
	outputFlag

	LockTimeout time.Duration `help:"How long to wait for open transactions that have written to the table, in steps between which others write. After that, the command shows them." default:"2s"`
	Table       string        `arg:"" help:"The table, as in SQL: accounts, public.accounts."`
}

// Help is shown by --help.
func (tableCmd) Help() string {
	return "Connects to the database as the owner of the table. docs/sql/incidents.md says when to use it."
}

// Run changes the table.
func (c *tableCmd) Run(ctx context.Context, con *console) error {
	if c.LockTimeout <= 0 {
		return usagef("--lock-timeout is %s, it must be positive", c.LockTimeout)
	}
	ctx, cancel := context.WithTimeout(ctx, tablesTimeout+c.LockTimeout)
	defer cancel()
	return c.connect(ctx, con, func(conn *pgx.Conn) error {
		table, err := migrations.ChangeTable(ctx, conn, c.Table, con.command.Name, c.LockTimeout)
		if err != nil {
			return tableError(err)
		}
		fields := []field{{"unprotected", table.Table}}
		if table.Mode != "" {
			fields = []field{
				{"table", table.Table}, {"template", table.Template}, {"mode", table.Mode}, {"problem", table.Problem},
			}
		}
		return con.show(table, fields)
	})
}

// tableError adds what to do about an error, and its exit code.
func tableError(err error) error {
	failed, ofDatabase := errors.AsType[*pgconn.PgError](err)
	switch {
	case errors.Is(err, migrations.ErrNoTable), errors.Is(err, migrations.ErrNotProtected):
		return &runError{exitNotFound, fmt.Errorf("%w\n\"fencegate tables\" lists those that are protected", err)}
	case errors.Is(err, migrations.ErrLocked):
		return &runError{exitUnavailable, err}
	case ofDatabase && failed.Code == insufficientPrivilege:
		return fmt.Errorf("%w\nConnect as the owner of the table (--database-url). That role "+
			"needs `fencegate migrate --table-owner-role NAME` once", err)
	}
	return err
}
