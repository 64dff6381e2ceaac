package names

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/jackc/pgx/v5"

	"github.com/fencegate/fencegate/internal/bench"
	"github.com/fencegate/fencegate/internal/testenv/gateway"
	"github.com/fencegate/fencegate/lockclient"
	"github.com/fencegate/fencegate/store"
)

// database is one with so many names, a gateway before it, and other ways to it.
type database struct {
	names   int
	config  Config
	url     string
	control *pgx.Conn
	st      *store.Store
	sweeper *store.Sweeper
	gateway *gateway.Process
	client  *lockclient.Client
	random  *rand.Rand
}

// open makes the database. The caller closes it also if it fails.
func open(ctx context.Context, config Config, names int) (d *database, err error) {
	d = &database{names: names, config: config,
		random: rand.New(rand.NewPCG(1, uint64(names)))} //nolint:gosec // an order, not a secret
	if d.url, err = bench.OtherDatabase(config.DatabaseURL, d.name()); err != nil {
		return d, err
	}
	if err := bench.Execute(ctx, config.DatabaseURL, d.drop(), "create database "+d.name()); err != nil {
		return d, err
	}
	if d.st, err = store.Open(ctx, store.Config{DatabaseURL: d.url, StatementTimeout: statementTimeout}); err != nil {
		return d, err
	}
	if err := d.st.Migrate(ctx); err != nil {
		return d, err
	}
	if d.sweeper, err = store.NewSweeper(d.st, store.SweeperConfig{}); err != nil {
		return d, err
	}
	if d.control, err = pgx.Connect(ctx, d.url); err != nil {
		return d, err
	}
	if err := fill(ctx, d.control, names, config.Progress); err != nil {
		return d, err
	}
	if d.gateway, err = d.start(ctx); err != nil {
		return d, err
	}
	d.client, err = lockclient.New(d.gateway.URL)
	return d, err
}

func (d *database) name() string { return fmt.Sprintf("fencegate_bench_%d", d.names) }

func (d *database) drop() string { return "drop database if exists " + d.name() + " with (force)" }

func (d *database) start(ctx context.Context) (*gateway.Process, error) {
	return gateway.Run(ctx, d.config.Program, "--database-url", d.url, "--log-level", "error",
		"--statement-timeout", statementTimeout.String())
}

// close drops the database.
func (d *database) close(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx)
	var errs []error
	if d.client != nil {
		d.client.Close()
	}
	if d.gateway != nil {
		errs = append(errs, d.gateway.Stop())
	}
	if d.control != nil {
		errs = append(errs, d.control.Close(ctx))
	}
	if d.st != nil {
		d.st.Close()
	}
	return errors.Join(append(errs, bench.Execute(ctx, d.config.DatabaseURL, d.drop()))...)
}

// free is a random name that no lease holds.
func (d *database) free() string {
	for {
		if n := d.random.IntN(d.names); n%runningOneIn != 0 {
			return nameOf(n)
		}
	}
}

// middle is a name in the middle, of the byte order of names.
func (d *database) middle() string { return nameOf(d.names / 2) }

func nameOf(n int) string { return fmt.Sprint(prefix, n) }
