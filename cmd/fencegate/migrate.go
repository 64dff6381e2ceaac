package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/fencegate/fencegate/store"
)

type migrateCmd struct {
	databaseFlags
	logFlags
}

// Help is shown by --help.
func (migrateCmd) Help() string {
	return "Brings the schema \"fence\" of the database up to this program's and exits. Safe to run any number of " +
		"times, also beside gateways that start."
}

// Run migrates.
func (c *migrateCmd) Run(ctx context.Context, streams streams) (err error) {
	logger := c.logger(streams.err)
	db, err := c.open(ctx, logger)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.close()) }()
	st, err := store.Open(ctx, store.Config{DatabaseURL: db.url})
	if err != nil {
		return err
	}
	defer st.Close()
	if err := awaitDatabase(ctx, st); err != nil {
		return err
	}
	if err := st.Migrate(ctx); err != nil {
		return err
	}
	_, err = fmt.Fprintln(streams.out, "the schema is up to date")
	return err
}
