package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/jackc/pgx/v5"

	"github.com/fencegate/fencegate/internal/checks"
	"github.com/fencegate/fencegate/internal/printable"
	"github.com/fencegate/fencegate/migrations"
	"github.com/fencegate/fencegate/store"
)

type migrateCmd struct {
	databaseFlags
	logFlags
	GatewayRole    []string `help:"Give this role the rights that gateways need. It then changes nothing but by fencegate's functions. Can be repeated." sep:"none" placeholder:"NAME"`
	AppRole        []string `help:"Give this role of an application the rights to guard transactions and to lease locks by SQL. Can be repeated." sep:"none" placeholder:"NAME"`
	TableOwnerRole []string `help:"Give this role the same rights, and the right to protect the tables that it owns. Can be repeated." sep:"none" placeholder:"NAME"`
	TokensAbove    *int64   `help:"Issue tokens above this one, and above all that another database can have issued until now: where this database takes the place of one that is lost or was deleted." placeholder:"TOKEN"`
}

// Help is shown by --help.
func (migrateCmd) Help() string {
	return "Brings the schema \"fence\" of the database up to this program's and exits. Safe to run any number of " +
		"times, also beside gateways that start. The roles that are named must exist. They keep their rights in later migrations; " +
		"name them again after an upgrade, for functions that it adds."
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
	if err := awaitDatabase(ctx, st, logger); err != nil {
		return err
	}
	if c.TokensAbove != nil {
		err = st.MigrateAbove(ctx, *c.TokensAbove)
	} else {
		err = st.Migrate(ctx)
	}
	if err != nil {
		return err
	}
	roles := migrations.Roles{Gateway: c.GatewayRole, App: c.AppRole, TableOwner: c.TableOwnerRole}
	if err := st.Grant(ctx, roles); err != nil {
		return err
	}
	if err := c.warn(ctx, db.url, streams.err); err != nil {
		return err
	}
	_, err = fmt.Fprintln(streams.out, "the schema is up to date")
	return err
}

// warn writes by what the roles of applications could get past the fence.
func (c *migrateCmd) warn(ctx context.Context, url string, to io.Writer) (err error) {
	if len(c.AppRole) == 0 {
		return nil
	}
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close(context.WithoutCancel(ctx))) }()
	findings, err := checks.Run(ctx, conn, checks.OfRoles, c.AppRole...)
	for _, f := range findings {
		_, _ = fmt.Fprintf(to, "warning: %s %s. %s\n", printable.Text(f.Subject), printable.Text(f.Detail), f.Advice)
	}
	return err
}
