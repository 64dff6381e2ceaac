package embeddedpg

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/fencegate/fencegate/internal/embeddedpg/flock"
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

// lockOwner makes this process the one owner of the data directory until the file is closed. The file is closed on
// exec, so no child can hold it, and a killed owner frees it. Returns ErrDataDirInUse if another process has it.
func lockOwner(l layout) (*os.File, error) {
	file, err := openLock(l.ownerLock())
	if err != nil {
		return nil, err
	}
	locked, err := flock.Try(file)
	if err == nil && !locked {
		err = fmt.Errorf("%w: %s belongs to the process %s; stop that, or choose another --data-dir, or pass the url that it logs as --database-url",
			ErrDataDirInUse, l.root, readOwner(file.Name()))
	}
	if err != nil {
		file.Close()
		return nil, err
	}
	// The pid is for the error message of a second start; nothing is decided by it.
	if err := os.WriteFile(file.Name(), []byte(strconv.Itoa(os.Getpid())+"\n"), 0o600); err != nil {
		return nil, errors.Join(err, flock.Release(file))
	}
	return file, nil
}

func openLock(path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("%w: %w; choose another with --data-dir", ErrDataDirUnusable, err)
	}
	return file, nil
}

func readOwner(path string) string {
	text, err := os.ReadFile(path)
	if pid := strings.TrimSpace(string(text)); err == nil && pid != "" {
		return pid
	}
	return "(unknown)"
}

// awaitPredecessor waits until the last process of a PostgreSQL that an earlier owner left behind has ended, and
// returns the lock for the next one to inherit. The earlier owner is dead, since lockOwner succeeded; its
// watchdog is shutting that PostgreSQL down, and in case the watchdog died as well, so does this.
// Bounded by ctx.
func awaitPredecessor(ctx context.Context, l layout, log *slog.Logger) (*os.File, error) {
	file, err := openLock(l.postgresLock())
	if err != nil {
		return nil, err
	}
	locked, err := flock.Try(file)
	if err == nil && !locked {
		log.Info("waiting for the PostgreSQL of an earlier run to end", "data_dir", l.root)
		quitLeftover(l)
		if err = flock.Wait(ctx, file); err != nil {
			err = fmt.Errorf("the PostgreSQL of an earlier run still uses %s (see %s): %w", l.root, l.pidFile(), err)
		}
	}
	if err != nil {
		file.Close()
		return nil, err
	}
	return file, nil
}

// initdb makes a cluster. It works beside the cluster's final path and renames it there when it
// is complete and on disk: a cluster that was cut short is never mistaken for one.
//
// The lock file is inherited, so that the next owner waits for an initdb whose gateway was killed.
func initdb(ctx context.Context, l layout, binaries Binaries, account *account, lock *os.File) error {
	staging, err := os.MkdirTemp(l.root, stagingPrefix)
	if err != nil {
		return err
	}
	defer os.RemoveAll(staging) // nothing to remove once it is renamed
	if err := account.give(staging); err != nil {
		return err
	}
	cmd := account.command(ctx, binaries.Path("initdb"),
		"--pgdata", staging,
		"--username", superuser,
		"--auth", "trust", // the socket's directory is what keeps others out
		"--encoding", "UTF8",
		"--locale", "C", // names sort by their bytes, on every machine and after every upgrade of it
		"--data-checksums",
		"--no-instructions")
	cmd.ExtraFiles = []*os.File{lock}
	cmd.Cancel = func() error { return killSession(cmd.Process) }
	cmd.WaitDelay = time.Second
	output, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		return fmt.Errorf("initdb: %w", context.Cause(ctx))
	}
	if err != nil {
		return fmt.Errorf("initdb: %w; it says:\n%s", err, lastLines(output))
	}
	if err := os.Rename(staging, l.cluster()); err != nil {
		return err
	}
	return syncDir(l.root)
}

// removeLeftovers removes clusters that initdb did not finish. Called with both locks held: no initdb is running.
func removeLeftovers(l layout) error {
	entries, err := os.ReadDir(l.root)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if !strings.HasPrefix(entry.Name(), stagingPrefix) {
			continue
		}
		if err := os.RemoveAll(filepath.Join(l.root, entry.Name())); err != nil {
			return fmt.Errorf("remove an unfinished cluster: %w", err)
		}
	}
	return nil
}

// syncDir puts the entries of a directory on disk.
func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Sync()
}
