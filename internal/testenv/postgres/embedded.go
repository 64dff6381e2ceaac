package postgres

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"syscall"

	"github.com/fencegate/fencegate/internal/embeddedpg"
)

// cacheFormat is raised when what is kept in the cache changes.
const cacheFormat = 1

// volatile are the settings of the shared server, which no test crashes: they save time and change nothing that a
// client can see.
var volatile = map[string]string{
	"fsync":            "off",
	"full_page_writes": "off",
	"deadlock_timeout": deadlockTimeout,
}

// startEmbedded starts the shared server from the binaries that find returns. It returns errNone if there are none.
func startEmbedded(ctx context.Context, find func() (embeddedpg.Binaries, error)) (*server, error) {
	binaries, err := find()
	if errors.Is(err, embeddedpg.ErrNoBinaries) {
		return nil, fmt.Errorf("%w: %s is not set, and %w", errNone, urlEnv, err)
	}
	if err != nil {
		return nil, err
	}
	dataDir, err := scratch.next()
	if err != nil {
		return nil, err
	}
	if err := copyCached(ctx, binaries, dataDir); err != nil {
		return nil, err
	}
	cluster, err := embeddedpg.Start(ctx, embeddedpg.Config{DataDir: dataDir, BinDir: binaries.Dir, Settings: volatile})
	if err != nil {
		return nil, err
	}
	stop := func() error {
		stopAtOnce(cluster)
		return removeCluster(dataDir)
	}
	return &server{url: cluster.URL(), stop: stop}, nil
}

// stopAtOnce stops a cluster whose data is no longer needed.
func stopAtOnce(cluster *embeddedpg.Cluster) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = cluster.Stop(ctx) // its error is that there was no time for a checkpoint
}

// copyCached makes a data directory with a copy of the cached cluster.
func copyCached(ctx context.Context, binaries embeddedpg.Binaries, dataDir string) error {
	cached, err := cachedCluster(ctx, binaries)
	if err != nil {
		return fmt.Errorf("make the cached cluster: %w", err)
	}
	if err := os.Mkdir(dataDir, 0o711); err != nil {
		return err
	}
	return copyCluster(cached, filepath.Join(dataDir, "cluster"))
}

var notInFileNames = regexp.MustCompile(`[^A-Za-z0-9.]+`)

// cachedCluster returns the directory of a cluster that was made once and shut down cleanly. It is made if it is
// missing; a lock keeps other processes from making it too, and a rename from seeing half of it.
func cachedCluster(ctx context.Context, binaries embeddedpg.Binaries) (string, error) {
	dir, err := cacheDir()
	if err != nil {
		return "", err
	}
	name := "cluster-" + strconv.Itoa(cacheFormat) + "-" + notInFileNames.ReplaceAllString(binaries.Version, "_")
	path := filepath.Join(dir, name)
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	lock, err := lockFile(ctx, path+".lock")
	if err != nil {
		return "", err
	}
	defer lock.Close()
	if _, err := os.Stat(path); err == nil {
		return path, nil // another process was faster
	}
	return path, makeCached(ctx, binaries, path)
}

// cacheDir is in the user's cache or, where the user has none, in the system's temporary directory.
func cacheDir() (string, error) {
	parent, err := os.UserCacheDir()
	if err != nil {
		dir := filepath.Join(os.TempDir(), "fgtest-cache-"+strconv.Itoa(os.Getuid()))
		return dir, ownDir(dir, 0o700)
	}
	dir := filepath.Join(parent, "fencegate", "testenv")
	return dir, os.MkdirAll(dir, 0o700)
}

func makeCached(ctx context.Context, binaries embeddedpg.Binaries, path string) error {
	dataDir, err := scratch.next()
	if err != nil {
		return err
	}
	cluster, err := embeddedpg.Start(ctx, embeddedpg.Config{DataDir: dataDir, BinDir: binaries.Dir})
	if err != nil {
		return err
	}
	if err := cluster.Stop(ctx); err != nil {
		return err
	}
	staging := path + ".new"
	if err := os.RemoveAll(staging); err != nil {
		return err
	}
	if err := copyCluster(filepath.Join(dataDir, "cluster"), staging); err != nil {
		return err
	}
	syscall.Sync() // a crash of the machine must not leave half a copy
	return errors.Join(os.Rename(staging, path), os.RemoveAll(dataDir))
}

// copyCluster copies a cluster that does not run. PostgreSQL demands that others can't enter its directory.
func copyCluster(from, to string) error {
	return errors.Join(os.CopyFS(to, os.DirFS(from)), os.Chmod(to, 0o700)) //nolint:gosec // it is a directory
}
