package main

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/fencegate/fencegate/gateway"
	"github.com/fencegate/fencegate/gateway/metrics"
	"github.com/fencegate/fencegate/migrations"
	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/cluster"
	"github.com/fencegate/fencegate/store/engine"
	"github.com/fencegate/fencegate/store/groupcommit"
	"github.com/fencegate/fencegate/store/postgres"
)

// atAddress is the URL of the same database at another address: a host or the directory of a socket, a colon, and a
// port.
func atAddress(databaseURL, address string) (string, error) {
	colon := strings.LastIndexByte(address, ':')
	host, port := address[:max(colon, 0)], address[colon+1:]
	if !strings.Contains(databaseURL, "://") {
		return fmt.Sprintf("%s host='%s' port=%s", databaseURL, host, port), nil // of a key that is there twice, the last one counts
	}
	parsed, err := url.Parse(databaseURL)
	if err != nil {
		return "", err
	}
	parsed.Host = ""
	query := parsed.Query()
	query.Set("host", host)
	query.Set("port", port)
	parsed.RawQuery = query.Encode()
	return parsed.String(), nil
}

// connectAt connects to the same database at another address.
func connectAt(ctx context.Context, databaseURL, address string) (*pgx.Conn, error) {
	at, err := atAddress(databaseURL, address)
	if err != nil {
		return nil, err
	}
	return pgx.Connect(ctx, at)
}

// nodes are what a gateway serves: the engine of its database, or with --cluster those of all nodes.
type nodes struct {
	gateway.Service

	engine  *engine.Engine
	cluster *cluster.Cluster // nil without --cluster
}

// start returns when calls can be answered.
func (n nodes) start(ctx context.Context) error {
	if n.cluster == nil {
		return nil
	}
	return n.cluster.Start(ctx)
}

func (n nodes) follow(ctx context.Context, logger *slog.Logger) {
	if n.cluster != nil {
		n.cluster.Follow(ctx, func(err error) { logger.Warn("names not placed", "error", err) })
	}
}

func (n nodes) cutOff() {
	n.engine.CutOff()
	if n.cluster != nil {
		n.cluster.CutOff()
	}
}

func (n nodes) close() {
	if n.cluster != nil {
		n.cluster.Close()
	}
}

// openCluster returns the nodes of the cluster whose coordinator an engine is on, or that engine alone.
func (c *serveCmd) openCluster(
	coordinator *engine.Engine, db *database, tracing store.Tracing, metrics *metrics.Metrics, logger *slog.Logger,
) nodes {
	if !c.Cluster {
		return nodes{coordinator, coordinator, nil}
	}
	all := c.newCluster(coordinator, db, tracing, metrics, logger)
	return nodes{all, coordinator, all}
}

// newCluster returns a cluster that opens the same database at the address of each node.
func (c *serveCmd) newCluster(
	coordinator *engine.Engine, db *database, tracing store.Tracing, metrics *metrics.Metrics, logger *slog.Logger,
) *cluster.Cluster {
	return cluster.New(coordinator, func(address string) (*engine.Engine, func(), error) {
		logger := logger.With("node", address)
		config := postgres.Config{
			ConnectionsMax: c.DatabaseConnectionsMax, StatementTimeout: c.StatementTimeout, LockTimeout: c.LockTimeout,
			Tracing: tracing, Logger: logger,
		}
		return openNode(db.url, address, config, c.engineConfig(nil),
			func(st *postgres.Store, on *engine.Engine) ([]func(context.Context), error) {
				sweeper, err := c.sweeper(st)
				return []func(context.Context){
					func(ctx context.Context) {
						on.Run(ctx, func(err error) { logger.Warn("notifications lost; waiters are polled", "error", err) })
					},
					func(ctx context.Context) {
						sweeper.Run(ctx, metrics.Swept, func(err error) { logger.Warn("sweep failed", "error", err) })
					},
				}, err
			})
	})
}

// openNode opens the same database at the address of a node, and runs what beside returns until end is called. beside
// may be nil.
func openNode(
	databaseURL, address string, config postgres.Config, engineConfig engine.Config,
	beside func(*postgres.Store, *engine.Engine) ([]func(context.Context), error),
) (on *engine.Engine, end func(), err error) {
	if config.DatabaseURL, err = atAddress(databaseURL, address); err != nil {
		return nil, nil, err
	}
	ctx := context.Background()
	st, err := postgres.Open(ctx, config)
	if err != nil {
		return nil, nil, err
	}
	on, err = engine.New(st, engineConfig)
	var tasks []func(context.Context)
	if err == nil && beside != nil {
		tasks, err = beside(st, on)
	}
	if err != nil {
		st.Close()
		return nil, nil, err
	}
	stop := background(ctx, tasks...)
	return on, func() {
		stop()
		st.Close()
	}, nil
}

// engineConfig configures the engine of a database.
func (c *serveCmd) engineConfig(providers []engine.LeaseProvider) engine.Config {
	return engine.Config{
		Leases: c.Leases, Providers: providers,
		RefusalsRememberedMax: cmp.Or(c.RefusalsRememberedMax, -1),
		Group: groupcommit.Config{BatchesMax: c.WriteBatchesMax, QueueMax: c.WriteQueueMax,
			QueueBytesMax: c.WriteQueueBytesMax},
	}
}

// distribute makes the database the coordinator of a cluster, and moves its names to where they are to be.
func (c *migrateCmd) distribute(ctx context.Context, con *console, st *postgres.Store, roles migrations.Roles) error {
	connect := func(ctx context.Context, address string) (*pgx.Conn, error) {
		return connectAt(ctx, c.DatabaseURL, address)
	}
	conn, err := pgx.Connect(ctx, c.DatabaseURL)
	if err != nil {
		return noDatabase("--database-url", err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	distribution := migrations.Distribution{With: c.Distribute, Connect: connect, Roles: roles}
	if err := distribution.Apply(ctx, conn); err != nil {
		return err
	}
	coordinator, err := engine.New(st, engine.Config{})
	if err != nil {
		return err
	}
	nodes := cluster.New(coordinator, func(address string) (*engine.Engine, func(), error) {
		return openNode(c.DatabaseURL, address, postgres.Config{}, engine.Config{}, nil)
	})
	defer nodes.Close()
	if err := nodes.Start(ctx); err != nil {
		return err
	}
	if err := nodes.Move(ctx); err != nil {
		return err
	}
	_, err = fmt.Fprintf(con.out, "the names are distributed among %d nodes\n", len(nodes.Nodes()))
	return err
}
