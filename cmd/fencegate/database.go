package main

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/fencegate/fencegate/internal/embeddedpg"
	"github.com/fencegate/fencegate/store"
)

// databaseFlags say where the database is.
type databaseFlags struct {
	DatabaseURL string `help:"PostgreSQL to use, as a URL or key=value string. Without one, a private PostgreSQL is run in --data-dir." env:"FENCEGATE_DATABASE_URL" placeholder:"URL"`
	DataDir     string `help:"Directory of the private PostgreSQL. Default: fencegate in the user's state directory." env:"FENCEGATE_DATA_DIR" type:"path" placeholder:"DIR"`
}

// database is the one that was named, or a private cluster that ends with it.
type database struct {
	url     string
	cluster *embeddedpg.Cluster // nil where one was named
}

func (f databaseFlags) open(ctx context.Context, logger *slog.Logger) (*database, error) {
	if f.DatabaseURL != "" {
		return &database{url: f.DatabaseURL}, nil
	}
	cluster, err := embeddedpg.Start(ctx, embeddedpg.Config{DataDir: f.DataDir, Logger: logger})
	if err != nil {
		return nil, err
	}
	return &database{url: cluster.URL(), cluster: cluster}, nil
}

// ended is closed when a private cluster ended by itself; it is nil, and never ready, where there is none.
func (d *database) ended() <-chan struct{} {
	if d.cluster == nil {
		return nil
	}
	return d.cluster.Done()
}

const (
	// databaseTimeout is how long a database that is only just starting is waited for.
	databaseTimeout = 15 * time.Second
	// databaseLogEvery is the least time between two log lines about that.
	databaseLogEvery = 5 * time.Second
)

// awaitDatabase waits until the database answers, and logs that it does.
func awaitDatabase(ctx context.Context, st *store.Store, logger *slog.Logger) error {
	var logged time.Time
	waiting := func(err error) {
		if time.Since(logged) > databaseLogEvery {
			logged = time.Now()
			logger.Warn("waiting for the database", "error", err)
		}
	}
	if err := st.Await(ctx, databaseTimeout, waiting); err != nil {
		return fmt.Errorf("%w\nIs PostgreSQL running, and is --database-url right?", err)
	}
	return nil
}

const clusterStopTimeout = 30 * time.Second

func (d *database) close() error {
	if d.cluster == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), clusterStopTimeout)
	defer cancel()
	return d.cluster.Stop(ctx)
}
