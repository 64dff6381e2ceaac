package embeddedpg

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	osuser "os/user"
	"sync/atomic"

	"github.com/fencegate/fencegate/internal/embeddedpg/flock"
)

// Cluster is a running PostgreSQL that belongs to this process. Its methods may be called at any time, from any
// goroutine.
type Cluster struct {
	layout    layout
	binaries  Binaries
	socketDir string
	log       *slog.Logger
	logStart  int64 // bytes of postgres.log that are of earlier runs

	owner        *os.File // this process owns the data directory while it is open
	postgresLock *os.File // inherited by PostgreSQL
	cmd          *exec.Cmd
	dog          *watchdog

	requested atomic.Int32  // the end that was requested
	done      chan struct{} // closed by reap
	err       error         // written before done is closed
}

// The ends that can be requested.
const (
	nothing = iota
	fastShutdown
	immediateShutdown
)

// Start starts the cluster in the data directory, making both if they are missing, and returns when it accepts
// connections and the database fencegate exists. After a crash it recovers first. ctx bounds the start alone.
//
// The errors are, among others of the operating system: ErrNoBinaries, ErrVersionMismatch, ErrDataDirInUse,
// ErrDataDirUnusable, and the cause of ctx's end. If PostgreSQL refused to start, the error quotes its log.
// After an error nothing is left running.
func Start(ctx context.Context, config Config) (*Cluster, error) {
	if err := supported(); err != nil {
		return nil, err
	}
	config, err := config.check()
	if err != nil {
		return nil, err
	}
	return start(ctx, config, machine())
}

func start(ctx context.Context, config Config, search search) (_ *Cluster, err error) {
	account, err := pickAccount(os.Geteuid(), osuser.Lookup)
	if err != nil {
		return nil, err
	}
	l, err := openDataDir(config.DataDir, account)
	if err != nil {
		return nil, err
	}
	c := &Cluster{layout: l, log: config.Logger, done: make(chan struct{})}
	defer func() {
		if err != nil && c.cmd == nil { // otherwise reap releases
			c.release()
		}
	}()
	if c.owner, err = lockOwner(l); err != nil {
		return nil, err
	}
	if c.postgresLock, err = awaitPredecessor(ctx, l, c.log); err != nil {
		return nil, err
	}
	if err := c.prepare(ctx, config, search, account); err != nil {
		return nil, err
	}
	if err := c.launch(config, account); err != nil {
		return nil, err
	}
	if err := c.awaitReady(ctx); err != nil {
		c.end()
		return nil, err
	}
	c.log.Info("PostgreSQL is ready", "data_dir", l.root, "version", c.binaries.Version, "pid", c.PID(), "url", c.URL())
	return c, nil
}

// prepare finds the binaries and brings the files into order.
func (c *Cluster) prepare(ctx context.Context, config Config, search search, account *account) error {
	major, err := c.layout.clusterMajor()
	if err != nil {
		return err
	}
	if c.binaries, err = choose(config.BinDir, major, search, c.layout.root); err != nil {
		return err
	}
	if err := account.checkReach(c.binaries.Dir, "install PostgreSQL where every user can run it"); err != nil {
		return err
	}
	if err := removeLeftovers(c.layout); err != nil {
		return err
	}
	if major == 0 {
		c.log.Info("making a new cluster", "data_dir", c.layout.root, "version", c.binaries.Version)
		if err := initdb(ctx, c.layout, c.binaries, account, c.postgresLock); err != nil {
			return err
		}
	}
	if err := account.giveTree(c.layout.cluster()); err != nil {
		return fmt.Errorf("give the cluster to its user: %w", err)
	}
	c.socketDir, err = openSocketDir(c.layout, account)
	return err
}

// choose returns the binaries for a cluster of version major, 0 meaning a new one.
func choose(binDir string, major int, search search, dataDir string) (Binaries, error) {
	switch {
	case binDir != "":
		binaries, err := inspect(binDir)
		if err == nil && major != 0 && binaries.Major != major {
			err = versionMismatch(dataDir, major, binaries)
		}
		return binaries, err
	case major != 0:
		return search.findMajor(major, dataDir)
	default:
		return search.find()
	}
}

// URL returns the connection URL of the database fencegate, for pgx and for psql. Another start may give another URL.
func (c *Cluster) URL() string { return c.DatabaseURL(database) }

// DatabaseURL returns the connection URL of another database of the cluster, which need not exist.
func (c *Cluster) DatabaseURL(name string) string { return socketURL(c.socketDir, name) }

// DataDir returns the data directory, without symbolic links.
func (c *Cluster) DataDir() string { return c.layout.root }

// SocketDir returns the directory of the socket, "host" to a PostgreSQL client.
func (c *Cluster) SocketDir() string { return c.socketDir }

// Binaries returns the binaries that run the cluster.
func (c *Cluster) Binaries() Binaries { return c.binaries }

// PID returns the process id of the postmaster, the parent of PostgreSQL's other processes.
func (c *Cluster) PID() int { return c.cmd.Process.Pid }

// Done is closed when PostgreSQL has ended, for whatever reason, and what belonged to it is released: the data
// directory can be started again.
func (c *Cluster) Done() <-chan struct{} { return c.done }

// Err returns nil until Done is closed. After it, nil if PostgreSQL ended on request; else an
// ErrEnded that says how it ended and quotes the end of its log.
func (c *Cluster) Err() error {
	select {
	case <-c.done:
		return c.err
	default:
		return nil
	}
}

// reap waits for the end of PostgreSQL and releases what belonged to it.
func (c *Cluster) reap() {
	err := c.cmd.Wait()
	c.dog.dismiss()
	state := c.cmd.ProcessState.String()
	switch requested := c.requested.Load(); {
	case requested == immediateShutdown, requested == fastShutdown && err == nil:
		c.log.Info("PostgreSQL has stopped", "data_dir", c.layout.root, "pid", c.PID())
	default:
		c.err = fmt.Errorf("%w: %s; its log ends:\n%s", ErrEnded, state, logTail(c.layout.log(), c.logStart))
		c.log.Error("PostgreSQL ended unexpectedly", "data_dir", c.layout.root, "pid", c.PID(), "state", state)
	}
	c.release()
	close(c.done)
}

// release gives up the data directory.
func (c *Cluster) release() {
	if c.socketDir != "" {
		if err := closeSocketDir(c.layout); err != nil {
			c.log.Warn("can't remove the socket's directory", "error", err)
		}
	}
	if c.postgresLock != nil {
		_ = c.postgresLock.Close() // an orphan of PostgreSQL may hold it still
	}
	if c.owner != nil {
		_ = flock.Release(c.owner)
	}
}
