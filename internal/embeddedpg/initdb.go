package embeddedpg

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

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
