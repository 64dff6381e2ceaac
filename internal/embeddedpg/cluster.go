package embeddedpg

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	osuser "os/user"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencegate/fencegate/internal/embeddedpg/flock"
)

var (
	// ErrNoBinaries says that no usable initdb and postgres were found.
	ErrNoBinaries = errors.New("no PostgreSQL binaries found")
	// ErrVersionMismatch says that the cluster in the data directory was made by a major version of PostgreSQL that
	// the binaries are not.
	ErrVersionMismatch = errors.New("the cluster is of another PostgreSQL version")
	// ErrDataDirInUse says that a living process owns the data directory.
	ErrDataDirInUse = errors.New("the data directory is in use")
	// ErrDataDirUnusable says that the data directory can't hold a cluster as it is; the text says why and what to do.
	ErrDataDirUnusable = errors.New("the data directory can't be used")
	// ErrEnded says that PostgreSQL ended without a request to end.
	ErrEnded = errors.New("PostgreSQL ended unexpectedly")
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

// launchScript becomes PostgreSQL, under the same pid, when it reads a line. If the pipe ends first it ends too.
const launchScript = `read -r line && exec "$@" </dev/null`

// launch starts PostgreSQL, and the goroutine that owns its end. At no instant can PostgreSQL outlive this process
// unwatched: the process does not become PostgreSQL before the watchdog knows its pid.
func (c *Cluster) launch(config Config, account *account) error {
	output, logStart, err := openServerLog(c.layout.log())
	if err != nil {
		return err
	}
	defer output.Close()
	stdin, pipe, err := os.Pipe()
	if err != nil {
		return err
	}
	defer pipe.Close()
	dog, err := startWatchdog(account)
	if err != nil {
		return errors.Join(err, stdin.Close())
	}
	args := append([]string{"-c", launchScript, "sh", c.binaries.Path("postgres")},
		config.postgresArgs(c.layout.cluster(), c.socketDir)...)
	cmd := account.command(context.Background(), "/bin/sh", args...)
	cmd.Env = append(cmd.Env, stalePidEnv(c.layout)...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, output, output
	cmd.ExtraFiles = []*os.File{c.postgresLock}
	err = cmd.Start()
	stdin.Close()
	if err != nil {
		dog.dismiss()
		return fmt.Errorf("start PostgreSQL: %w", err)
	}
	err = dog.watch(cmd.Process.Pid)
	if err == nil {
		_, err = pipe.WriteString("go\n")
	}
	if err != nil {
		pipe.Close() // without a line to read, the process ends
		err = errors.Join(err, cmd.Wait())
		dog.dismiss()
		return fmt.Errorf("start PostgreSQL: %w", err)
	}
	c.cmd, c.dog, c.logStart = cmd, dog, logStart
	go c.reap()
	return nil
}

// readyPause lies between two looks at a server that starts.
const readyPause = 10 * time.Millisecond

// SQLSTATEs of a server that will accept connections soon.
const (
	cannotConnectNow   = "57P03"
	tooManyConnections = "53300"
)

// awaitReady returns when connections are accepted and the database exists, or PostgreSQL has ended, or ctx has.
// It looks at the status in postmaster.pid first: connecting too early would fill the log.
func (c *Cluster) awaitReady(ctx context.Context) error {
	for {
		pid, status := c.layout.postmasterFile()
		if pid == c.PID() && status == statusReady {
			if err := c.ensureDatabase(ctx); !soon(err) {
				return err
			}
		}
		select {
		case <-c.done:
			return fmt.Errorf("PostgreSQL did not start: %w", c.err)
		case <-ctx.Done():
			return fmt.Errorf("PostgreSQL was not ready in time: %w; its log ends:\n%s",
				context.Cause(ctx), logTail(c.layout.log(), c.logStart))
		case <-time.After(readyPause):
		}
	}
}

// ensureDatabase makes the database if it is missing. A standby has what its primary has.
func (c *Cluster) ensureDatabase(ctx context.Context) error {
	config, err := pgx.ParseConfig(c.DatabaseURL("postgres"))
	if err != nil {
		return err
	}
	config.RuntimeParams = map[string]string{"application_name": "fencegate start"} // nothing of PGOPTIONS
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	var present, standby bool
	err = conn.QueryRow(ctx,
		"select exists (select from pg_database where datname = $1), pg_is_in_recovery()", database).Scan(&present, &standby)
	if err != nil || present || standby {
		return err
	}
	_, err = conn.Exec(ctx, "create database "+pgx.Identifier{database}.Sanitize())
	return err
}

// soon reports whether a connection failed as it does while a server starts, or just after it lost a process.
func soon(err error) bool {
	var refused *pgconn.PgError
	if errors.As(err, &refused) {
		return refused.Code == cannotConnectNow || refused.Code == tooManyConnections
	}
	var failed *pgconn.ConnectError
	return errors.As(err, &failed)
}

// immediateLimit bounds an immediate shutdown. PostgreSQL kills its own children after 5 s of it.
const immediateLimit = 10 * time.Second

// Stop shuts PostgreSQL down: clients are disconnected, their transactions rolled back, a checkpoint is made. It
// returns when PostgreSQL has ended; nil also if it had ended before, and ErrEnded if it failed on the way. If ctx ends
// first, PostgreSQL is shut down at once instead, and Stop returns an error that wraps ctx's cause: nothing
// acknowledged is lost, the next start recovers.
func (c *Cluster) Stop(ctx context.Context) error {
	select {
	case <-c.done:
		return nil
	default:
	}
	c.requested.CompareAndSwap(nothing, fastShutdown)
	_ = interrupt(c.cmd.Process) // fails if it has ended
	select {
	case <-c.done:
		return c.err
	case <-ctx.Done():
	}
	if c.end() {
		return nil
	}
	return fmt.Errorf("PostgreSQL had to be stopped at once and will recover at its next start: %w", context.Cause(ctx))
}

// end shuts PostgreSQL down without a checkpoint, by force if need be, and returns when it has ended. It reports
// whether PostgreSQL had ended before.
func (c *Cluster) end() (ended bool) {
	select {
	case <-c.done:
		return true
	default:
	}
	c.requested.Store(immediateShutdown)
	_ = quit(c.cmd.Process) // fails if it has ended
	limit := time.NewTimer(immediateLimit)
	defer limit.Stop()
	select {
	case <-c.done:
	case <-limit.C:
		c.Kill()
	}
	return false
}

// Kill kills all processes of PostgreSQL at once, as a power failure would, and returns when the postmaster has ended.
// It is for fault tests. Err then says that it was killed.
func (c *Cluster) Kill() {
	select {
	case <-c.done:
		return
	default:
	}
	// Frozen, the postmaster starts no more processes and does not reap its children, whose pids so stay theirs. The
	// signal takes effect when it likes: repeat until no new child shows up.
	_ = freeze(c.cmd.Process)
	killed := map[int]bool{}
	for news := true; news; {
		news = false
		for _, child := range children(c.PID()) {
			if !killed[child] {
				killed[child], news = true, true
				_ = kill(child)
			}
		}
	}
	_ = c.cmd.Process.Kill()
	<-c.done
}
