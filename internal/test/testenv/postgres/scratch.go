package postgres

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/fencegate/fencegate/internal/embeddedpg/flock"
	"github.com/fencegate/fencegate/internal/test/testenv/process"
)

// scratchDir is this process's directory for clusters:
//
//	…/fgtest-1000/              of one user; PostgreSQL's user passes through, hence not in t.TempDir
//	    lock                    held for moments
//	    K5XRUT2QPA/             of one process
//	        alive               locked by it for its life
//	        1/, 2/, …           data directories; short names, for the sockets in them
type scratchDir struct {
	mu    sync.Mutex
	path  string // "" until it is needed
	alive *os.File
	count int
}

var scratch scratchDir

// next returns the path of a data directory that does not exist yet.
func (s *scratchDir) next() (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.path == "" {
		if err := s.open(); err != nil {
			return "", fmt.Errorf("make a directory for clusters: %w", err)
		}
	}
	s.count++
	return filepath.Join(s.path, strconv.Itoa(s.count)), nil
}

// open makes the directory of this process and removes those of dead ones, under the user's lock: no other process is
// halfway through the same.
func (s *scratchDir) open() error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	parent := filepath.Join(process.TempParent(), "fgtest-"+strconv.Itoa(os.Getuid()))
	if err := ownDir(parent, 0o711); err != nil {
		return err
	}
	lock, err := lockFile(ctx, filepath.Join(parent, "lock"))
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := removeDead(parent); err != nil {
		return err
	}
	path := filepath.Join(parent, rand.Text()[:10])
	if err := ownDir(path, 0o711); err != nil {
		return err
	}
	if s.alive, err = lockFile(ctx, filepath.Join(path, "alive")); err != nil {
		return err
	}
	s.path = path
	return nil
}

// remove removes the directory of this process, whose clusters have all ended.
func (s *scratchDir) remove() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.path == "" {
		return nil
	}
	err := os.RemoveAll(s.path)
	s.path = ""
	return errors.Join(err, s.alive.Close())
}

// ownDir makes a directory, or makes sure that an existing one is this user's: others can make names in the system's
// temporary directory too.
func ownDir(path string, mode fs.FileMode) error {
	if err := os.Mkdir(path, mode); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	if !info.IsDir() || info.Sys().(*syscall.Stat_t).Uid != uint32(os.Geteuid()) {
		return fmt.Errorf("%s is not a directory of this user; remove it", path)
	}
	return os.Chmod(path, mode)
}

// lockFile opens a file and waits for its lock, which is held until it is closed.
func lockFile(ctx context.Context, path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := flock.Wait(ctx, file); err != nil {
		file.Close()
		return nil, fmt.Errorf("wait for %s: %w", path, err)
	}
	return file, nil
}

// removeDead removes the directories whose processes are dead, as are the PostgreSQLs in them.
func removeDead(parent string) error {
	dirs, err := filepath.Glob(filepath.Join(parent, "*", "alive"))
	if err != nil {
		return err
	}
	for _, alive := range dirs {
		dir := filepath.Dir(alive)
		locks, err := filepath.Glob(filepath.Join(dir, "*", "postgres.lock"))
		if err != nil {
			return err
		}
		if anyHeld(append(locks, alive)) {
			continue
		}
		clusters, err := filepath.Glob(filepath.Join(dir, "*", "cluster"))
		if err != nil {
			return err
		}
		for _, cluster := range clusters {
			if err := removeCluster(filepath.Dir(cluster)); err != nil {
				return err
			}
		}
		if err := os.RemoveAll(dir); err != nil {
			return err
		}
	}
	return nil
}

func anyHeld(paths []string) bool {
	for _, path := range paths {
		file, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			continue // its owner has just removed it
		}
		free, err := flock.Try(file)
		file.Close()
		if err != nil || !free {
			return true
		}
	}
	return false
}

// sharedMemoryLine is the line of postmaster.pid, from 0, that has the key and the id of the shared memory.
const sharedMemoryLine = 6

// removeCluster removes a data directory. A PostgreSQL that was killed leaves a piece of System V shared memory, of
// which the system has a limited number and which only the next start on the same data would remove.
func removeCluster(dataDir string) error {
	text, err := os.ReadFile(filepath.Join(dataDir, "cluster", "postmaster.pid"))
	if err == nil { // present if it did not end by itself
		lines := strings.Split(string(text), "\n")
		if len(lines) > sharedMemoryLine {
			if fields := strings.Fields(lines[sharedMemoryLine]); len(fields) == 2 {
				// Fails if it is gone after all; on a system without ipcrm, some bytes are lost.
				_ = exec.Command("ipcrm", "-m", fields[1]).Run()
			}
		}
	}
	return os.RemoveAll(dataDir)
}
