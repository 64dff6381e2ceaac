//go:build unix

package main

import (
	"context"
	"errors"

	"github.com/fencegate/fencegate/internal/bench/tables"
)

type tablesCmd struct {
	databaseFlags

	Config tables.Config `embed:""`
	Output string        `help:"text, or json: all samples." enum:"text,json" default:"text"`
	Goals  bool          `help:"Compare what was measured with the targets that we set ourselves."`
}

// Help is shown by --help.
func (tablesCmd) Help() string {
	return "Updates of tables that are protected by fence.protect, after fence.guard, beside bare updates of unprotected " +
		"tables and a fence made by hand, in the same run: by pgx, by pgbench where it is installed, and in bulk. The " +
		"ratios are of the same round: quote them, not single figures."
}

// Run measures.
func (c *tablesCmd) Run(ctx context.Context, to output) (err error) {
	if c.DatabaseURL != "" && c.Config.FlushDelay != 0 {
		return errors.New("--flush-delay is for a private PostgreSQL, not for the one at --database-url")
	}
	db, err := c.open(ctx, manyConnections, c.Config.FlushDelay)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.close()) }()
	config := c.Config
	config.DatabaseURL, config.Progress = db.url, to.progress
	report, err := tables.Run(ctx, config)
	if err != nil {
		return err
	}
	if c.Output == "json" {
		return writeJSON(to.out, report)
	}
	if err := report.WriteTables(to.out); err != nil {
		return err
	}
	if c.Goals {
		return report.WriteGoals(to.out)
	}
	return nil
}
