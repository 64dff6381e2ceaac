package demo

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/fencegate/fencegate/internal/embeddedpg"
)

// PrivateName describes the database of OpenPrivate.
const PrivateName = "a private PostgreSQL, durable, in a temporary directory"

// OpenPrivate runs a private PostgreSQL in a temporary directory, both of which the caller ends with closeAll.
func OpenPrivate(ctx context.Context) (url string, closeAll func() error, err error) {
	dir, err := os.MkdirTemp("", "fencegate-scratch-")
	if err != nil {
		return "", nil, err
	}
	// If root starts it, PostgreSQL runs as another user, which must get through here to its own directory.
	err = os.Chmod(dir, 0o711) //nolint:gosec // nothing is in it but that directory
	var cluster *embeddedpg.Cluster
	if err == nil {
		config := embeddedpg.Config{DataDir: filepath.Join(dir, "data"), Logger: slog.New(slog.DiscardHandler)}
		cluster, err = embeddedpg.Start(ctx, config)
	}
	if err != nil {
		return "", nil, errors.Join(err, os.RemoveAll(dir))
	}
	return cluster.URL(), func() error {
		ctx, cancel := context.WithTimeout(context.Background(), clusterStopTimeout)
		defer cancel()
		return errors.Join(cluster.Stop(ctx), os.RemoveAll(dir))
	}, nil
}
