//go:build unix

package main

import (
	"context"
	"errors"

	"github.com/fencegate/fencegate/internal/bench/soak"
)

type soakCmd struct {
	databaseFlags
	programFlags

	Config soak.Config `embed:""`
}

// Help is shown by --help.
func (soakCmd) Help() string {
	return "Two gateways under a moderate load, with ever new names beside it, and for a minute a snapshot that is held " +
		"open. Shows every sample of their memory, goroutines, file descriptors and connections, and of the size of each " +
		"table and index, on standard error. Exits 1 if something is higher in the last third of the time than in the " +
		"middle third, or if the load found a violation."
}

// walMax lets the write-ahead log reach its size within minutes.
var walMax = map[string]string{"max_wal_size": "256MB"}

// Run soaks.
func (c *soakCmd) Run(ctx context.Context, to output) (err error) {
	program, _, err := c.programs()
	if err != nil {
		return err
	}
	db, err := c.open(ctx, walMax, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.close()) }()
	config := c.Config
	config.Program, config.DatabaseURL, config.Progress = program, db.url, to.progress
	report, err := soak.Run(ctx, config)
	if err != nil {
		return err
	}
	return report.WriteText(to.out)
}
