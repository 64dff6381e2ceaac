package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencegate/fencegate/internal/checks"
	"github.com/fencegate/fencegate/internal/printable"
	"github.com/fencegate/fencegate/migrations"
)

type checkCmd struct {
	databaseFlags
	logFlags
	outputFlag

	PatroniURL string `help:"The REST API of a node of Patroni, to check its configuration, too." env:"FENCEGATE_PATRONI_URL" placeholder:"URL"`

	Timeout time.Duration `help:"How long all checks may take." default:"1m"`
}

// Help is shown by --help.
func (checkCmd) Help() string {
	return "Reads the catalog, and changes nothing: protected tables whose triggers are disabled, missing or changed; " +
		"partitions without a trigger for TRUNCATE; roles that could get past the fence; tables that are only observed; " +
		"settings with which a crash or a failover loses acknowledged writes. " +
		"Run it as the role of the gateway. Exits 1 if it finds an error; warnings and notices exit 0."
}

// Run checks the database.
func (c *checkCmd) Run(ctx context.Context, con *console) (err error) {
	if c.Timeout <= 0 {
		return usagef("--timeout is %s, it must be positive", c.Timeout)
	}
	if err := con.format.many(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	db, err := c.open(ctx, c.logger(con.err))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.close()) }()
	conn, err := pgx.Connect(ctx, db.url)
	if err != nil {
		return fmt.Errorf("%w\nIs PostgreSQL running, and is --database-url right?", err)
	}
	defer func() { err = errors.Join(err, conn.Close(context.WithoutCancel(ctx))) }()
	if err := migrations.Check(ctx, conn); err != nil {
		if failed, ok := errors.AsType[*pgconn.PgError](err); ok && failed.Code == "42501" { // insufficient_privilege
			return fmt.Errorf("%w\nRun it as the role of the gateway", err)
		}
		return err
	}
	findings, err := c.find(ctx, conn, db.url)
	if err != nil {
		return err
	}
	return con.findings(findings)
}

// find runs the checks of the database, of its URL, and of Patroni.
func (c *checkCmd) find(ctx context.Context, conn *pgx.Conn, databaseURL string) ([]checks.Finding, error) {
	ofDatabase, err := checks.Run(ctx, conn, checks.All)
	if err != nil {
		return nil, err
	}
	ofURL, err := checks.URL(databaseURL)
	if err != nil || c.PatroniURL == "" {
		return append(ofDatabase, ofURL...), err
	}
	ofPatroni, err := checks.Patroni(ctx, http.DefaultClient, c.PatroniURL)
	if err != nil {
		return nil, fmt.Errorf("--patroni-url: %w", err)
	}
	return slices.Concat(ofDatabase, ofURL, ofPatroni), nil
}

// findings shows what the checks found. It returns an error if there is an error among the findings.
func (c *console) findings(findings []checks.Finding) error {
	number := 0
	for i, f := range findings {
		if f.Severity == checks.Error {
			number++
		}
		if c.format.documents() {
			if err := c.document(f); err != nil {
				return err
			}
			continue
		}
		if i == 0 || findings[i-1].Check != f.Check {
			_, _ = fmt.Fprintf(c.out, "%s: %s\n  %s\n", f.Severity, f.Check, f.Advice)
		}
		if _, err := fmt.Fprintf(c.out, "  - %s: %s\n", printable.Text(f.Subject), printable.Text(f.Detail)); err != nil {
			return err
		}
	}
	if number > 0 {
		return fmt.Errorf("errors: %d, other findings: %d", number, len(findings)-number)
	}
	c.note("errors: 0, other findings: %d", len(findings))
	return nil
}
