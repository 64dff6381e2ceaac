//go:build unix

package main

import (
	"context"
	"errors"

	"github.com/fencegate/fencegate/internal/bench/names"
)

type namesCmd struct {
	databaseFlags
	programFlags

	Config names.Config `embed:""`
	Output string       `help:"text, or json: all samples." enum:"text,json" default:"text"`
}

// Help is shown by --help.
func (namesCmd) Help() string {
	return "Makes a database for each number of names, with a fence and a record each, a lease for a tenth of them, and a " +
		"gateway before it. Then measures in turn what clients wait for, what gateways do by themselves, and what reads " +
		"many names. Ten million names take 6 GB of disk, and some minutes to make. The ratios are of the same round: " +
		"quote them, not single figures."
}

// Run measures.
func (c *namesCmd) Run(ctx context.Context, to output) (err error) {
	program, _, err := c.programs()
	if err != nil {
		return err
	}
	db, err := c.open(ctx, nil, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.close()) }()
	config := c.Config
	config.Program, config.DatabaseURL, config.Progress = program, db.url, to.progress
	report, err := names.Run(ctx, config)
	if err != nil {
		return err
	}
	if c.Output == "json" {
		return writeJSON(to.out, report)
	}
	return report.WriteTable(to.out)
}
