package embeddedpg

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"

	"github.com/fencegate/fencegate/internal/embeddedpg/flock"
)

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
