package embeddedpg

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
)

// rootDataDir is the default under root, whose home no other user can enter.
const rootDataDir = "/var/lib/fencegate"

// DefaultDataDir returns the data directory that is used when none is given: /var/lib/fencegate for root;
// $XDG_STATE_HOME/fencegate where that is set; else ~/.local/state/fencegate, or
// ~/Library/Application Support/fencegate on macOS. It fails if the user has no home directory.
func DefaultDataDir() (string, error) {
	return defaultDataDir(os.Geteuid(), runtime.GOOS, os.Getenv("XDG_STATE_HOME"), os.UserHomeDir)
}

func defaultDataDir(euid int, goos, stateHome string, home func() (string, error)) (string, error) {
	if euid == 0 {
		return rootDataDir, nil
	}
	// The XDG specification says to ignore a relative path.
	if filepath.IsAbs(stateHome) {
		return filepath.Join(stateHome, "fencegate"), nil
	}
	dir, err := home()
	if err != nil {
		return "", fmt.Errorf("no default data directory, give one with --data-dir: %w", err)
	}
	if goos == "darwin" {
		return filepath.Join(dir, "Library", "Application Support", "fencegate"), nil
	}
	return filepath.Join(dir, ".local", "state", "fencegate"), nil
}

// layout names what is in a data directory.
type layout struct{ root string }

const stagingPrefix = "cluster.new-"

func (l layout) ownerLock() string    { return filepath.Join(l.root, "lock") }
func (l layout) postgresLock() string { return filepath.Join(l.root, "postgres.lock") }
func (l layout) cluster() string      { return filepath.Join(l.root, "cluster") }
func (l layout) run() string          { return filepath.Join(l.root, "run") }
func (l layout) log() string          { return filepath.Join(l.root, "postgres.log") }
func (l layout) pidFile() string      { return filepath.Join(l.cluster(), "postmaster.pid") }

// openDataDir makes the data directory if it is missing and checks that account can reach it.
func openDataDir(dir string, account *account) (layout, error) {
	mode := fs.FileMode(0o700)
	if account != nil {
		mode = 0o711 // the other user passes through to what is its own; it can't list or change the rest
	}
	_, err := os.Stat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		if err = os.MkdirAll(filepath.Dir(dir), 0o755); err == nil {
			err = os.Mkdir(dir, mode)
		}
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return layout{}, fmt.Errorf("%w: %w; choose another with --data-dir", ErrDataDirUnusable, err)
	}
	// The path without links is what a process of an earlier run is recognized by.
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return layout{}, fmt.Errorf("%w: %w", ErrDataDirUnusable, err)
	}
	if _, err := os.Lstat(filepath.Join(real, "PG_VERSION")); err == nil {
		return layout{}, fmt.Errorf("%w: %s is itself a PostgreSQL cluster, which fencegate does not own; "+
			"choose another with --data-dir, or run that cluster and name it with --database-url", ErrDataDirUnusable, dir)
	}
	if err := account.checkReach(real, "choose another with --data-dir"); err != nil {
		return layout{}, fmt.Errorf("%w: %w", ErrDataDirUnusable, err)
	}
	return layout{root: real}, nil
}

// clusterMajor returns the major version that made the cluster, or 0 if there is none yet.
func (l layout) clusterMajor() (int, error) {
	entries, err := os.ReadDir(l.cluster())
	if errors.Is(err, fs.ErrNotExist) || (err == nil && len(entries) == 0) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("%w: %w", ErrDataDirUnusable, err)
	}
	text, err := os.ReadFile(filepath.Join(l.cluster(), "PG_VERSION"))
	if err != nil {
		return 0, fmt.Errorf("%w: %s holds something that is not a PostgreSQL cluster (%w); "+
			"move it away, or choose another --data-dir", ErrDataDirUnusable, l.cluster(), err)
	}
	major, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || major < minMajor {
		return 0, fmt.Errorf("%w: %s says version %q; %d or newer is needed",
			ErrDataDirUnusable, filepath.Join(l.cluster(), "PG_VERSION"), strings.TrimSpace(string(text)), minMajor)
	}
	return major, nil
}
