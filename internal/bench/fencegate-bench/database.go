//go:build unix

package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/fencegate/fencegate/internal/bench/slowflush"
	"github.com/fencegate/fencegate/internal/embeddedpg"
)

type databaseFlags struct {
	DatabaseURL string `help:"PostgreSQL to use. Default: a private one in a temporary directory." env:"FENCEGATE_DATABASE_URL" placeholder:"URL"`
}

// database is the one of --database-url, or a private one.
type database struct {
	url     string
	cluster *embeddedpg.Cluster // nil for the one of --database-url
	dir     string
}

// manyConnections are the settings for the writes: a connection for each of 256 clients, beside the store's and the
// gateway's. All else is as a gateway runs its private PostgreSQL.
var manyConnections = map[string]string{"max_connections": "400"}

const stopTimeout = 30 * time.Second

// open returns a database. A private one has the settings, and each of its flushes takes longer by flushDelay.
func (f databaseFlags) open(
	ctx context.Context, settings map[string]string, flushDelay time.Duration,
) (_ *database, err error) {
	if f.DatabaseURL != "" {
		return &database{url: f.DatabaseURL}, nil
	}
	dir, err := os.MkdirTemp("", "fencegate-bench-")
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(dir))
		}
	}()
	// If root starts it, PostgreSQL runs as another user, which must get through here to its own directory.
	if err := os.Chmod(dir, 0o711); err != nil { //nolint:gosec // nothing is in it but that directory
		return nil, err
	}
	config := embeddedpg.Config{DataDir: filepath.Join(dir, "data"), Settings: settings}
	if flushDelay != 0 {
		config.BinDir = filepath.Join(dir, "bin")
		if err := makeSlowPrograms(ctx, config.BinDir, flushDelay); err != nil {
			return nil, err
		}
	}
	cluster, err := embeddedpg.Start(ctx, config)
	if err != nil {
		return nil, err
	}
	return &database{url: cluster.URL(), cluster: cluster, dir: dir}, nil
}

func makeSlowPrograms(ctx context.Context, dir string, flushDelay time.Duration) error {
	binaries, err := embeddedpg.FindBinaries()
	if err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o755); err != nil { // PostgreSQL's user runs what is in it
		return err
	}
	return slowflush.Programs(ctx, dir, binaries.Dir, flushDelay)
}

func (d *database) close() error {
	if d.cluster == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	return errors.Join(d.cluster.Stop(ctx), os.RemoveAll(d.dir))
}
