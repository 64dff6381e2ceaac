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

// benchSettings of a private PostgreSQL: a connection for each of 256 clients, beside the store's and the gateway's. All else is as a gateway
// runs it.
var benchSettings = map[string]string{"max_connections": "400"}

// openBench opens the database that was named, or a private one with those settings, each of whose flushes takes longer by flushDelay.
func (f scratchFlags) openBench(ctx context.Context, flushDelay time.Duration) (_ *scratch, err error) {
	if f.DatabaseURL != "" {
		return f.open(ctx)
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
	// As root PostgreSQL runs as another user, who must get through here to its own directory.
	if err := os.Chmod(dir, 0o711); err != nil { //nolint:gosec // nothing is in it but that directory
		return nil, err
	}
	config := embeddedpg.Config{DataDir: filepath.Join(dir, "data"), Settings: benchSettings}
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
	return &scratch{database: &database{url: cluster.URL(), cluster: cluster}, name: "a private PostgreSQL", dir: dir}, nil
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
