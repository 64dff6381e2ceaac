package soak

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/fencegate/fencegate/internal/load"
	"github.com/fencegate/fencegate/internal/testenv/gateway"
	"github.com/fencegate/fencegate/lockclient"
)

const gateways = 2

// retention lets what is kept for a time reach its size within the first third of a run of some minutes.
var retention = []string{"--lease-retention", "1m", "--rejection-age", "1m", "--history-retention", "1m"}

// rig is what runs during a soak.
type rig struct {
	config   Config
	db       *pgx.Conn
	gateways []*gateway.Process
	clients  []*lockclient.Client
	begun    time.Time
}

// Run loads gateways, and judges what grew. It returns bench.ErrInvalid for a configuration that makes no sense.
func Run(ctx context.Context, config Config) (report Report, err error) {
	if err := config.check(); err != nil {
		return Report{}, err
	}
	r := &rig{config: config}
	defer func() { err = errors.Join(err, r.close(ctx)) }()
	if err := r.open(ctx); err != nil {
		return Report{}, err
	}
	work, loading := errgroup.WithContext(ctx)
	running, stop := context.WithTimeout(loading, config.Duration)
	defer stop()
	work.Go(func() (err error) { report.Load, err = r.load(loading); return err })
	work.Go(func() error { return r.useNewNames(running) })
	work.Go(func() error { return r.holdSnapshot(running) })
	work.Go(func() (err error) { report.Samples, err = r.sample(running); return err })
	if err := work.Wait(); err != nil {
		return report, err
	}
	return report, ctx.Err()
}

// open starts the gateways. The caller closes the rig also if it fails. With Go's default of GOGC their memory shows what
// is in use, and hardly what has not been collected yet.
func (r *rig) open(ctx context.Context) (err error) {
	if err := os.Setenv("GOGC", "100"); err != nil {
		return err
	}
	for i := range gateways {
		args := append([]string{"--database-url", r.config.DatabaseURL, "--gateway-name", gatewayName(i)}, retention...)
		gateway, err := gateway.Run(ctx, r.config.Program, args...)
		if err != nil {
			return err
		}
		r.gateways = append(r.gateways, gateway)
		client, err := lockclient.New(gateway.URL)
		if err != nil {
			return err
		}
		r.clients = append(r.clients, client)
	}
	if r.db, err = pgx.Connect(ctx, r.config.DatabaseURL); err != nil {
		return fmt.Errorf("--database-url: %w", err)
	}
	r.begun = time.Now()
	return nil
}

func gatewayName(i int) string { return fmt.Sprintf("gateway-%d", i+1) }

func (r *rig) close(ctx context.Context) (err error) {
	for _, client := range r.clients {
		client.Close()
	}
	for _, gateway := range r.gateways {
		err = errors.Join(err, gateway.Stop())
	}
	if r.db != nil {
		err = errors.Join(err, r.db.Close(context.WithoutCancel(ctx)))
	}
	return err
}

// load has clients contend for locks for the duration.
func (r *rig) load(ctx context.Context) (*load.Report, error) {
	config := load.Config{Clients: r.config.Clients, Locks: r.config.Locks, Duration: r.config.Duration}
	for i, client := range r.clients {
		config.Gateways, config.URLs = append(config.Gateways, client.API()), append(config.URLs, r.gateways[i].URL)
	}
	return load.Run(ctx, config)
}

// holdSnapshot keeps a transaction open that sees the database as it was, so that no later version of a row can be
// removed meanwhile.
func (r *rig) holdSnapshot(ctx context.Context) error {
	if !pause(ctx, r.config.Duration/3) {
		return nil
	}
	holder, err := pgx.Connect(ctx, r.config.DatabaseURL)
	if err != nil {
		return err
	}
	defer holder.Close(context.WithoutCancel(ctx))
	tx, err := holder.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, "select count(*) from fence.fences"); err != nil {
		return fmt.Errorf("take a snapshot: %w", err)
	}
	r.config.progress("a snapshot is held open for %s", r.config.Snapshot)
	pause(ctx, r.config.Snapshot)
	return tx.Rollback(context.WithoutCancel(ctx))
}

// pause reports whether it lasted to its end.
func pause(ctx context.Context, length time.Duration) bool {
	select {
	case <-time.After(length):
		return true
	case <-ctx.Done():
		return false
	}
}
