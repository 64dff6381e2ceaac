package postgres

import (
	"errors"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fencegate/fencegate/internal/embeddedpg"
	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/internal/test/testenv/network"
	"github.com/fencegate/fencegate/internal/test/testenv/process"
)

// Cluster is a PostgreSQL of one test's own, durable like the one that `fencegate serve` runs. It starts up and
// running, with an empty database, and is removed when the test ends. It is a copy of a cluster that was made once, and
// has its system identifier, unless the option Stranger is given.
//
// Its methods end the test if they fail, and so are for the test's goroutine; URL, DatabaseURL, PID and Kill can't fail
// and are for any, though not for two that change the cluster at the same time.
type Cluster struct {
	t        testing.TB
	dataDir  string
	binDir   string // "": the machine's
	settings map[string]string
	stranger bool
	url      string
	primary  *Cluster // what it was copied from, if it is a standby
	running  *embeddedpg.Cluster
}

// deadlockTimeout is how long a statement waits for a lock before PostgreSQL looks for a deadlock. At the default of 1
// s, most deadlocks end before that for other reasons, and look like a pause.
const deadlockTimeout = "20ms"

// Option changes how a cluster is run.
type Option func(*Cluster)

// Setting puts one of PostgreSQL's settings over the cluster's own, for all its starts.
func Setting(name, value string) Option {
	return func(c *Cluster) { c.settings[name] = value }
}

// Stranger gives the cluster a system identifier of its own. It takes initdb, about a second more.
func Stranger() Option {
	return func(c *Cluster) { c.stranger = true }
}

// NewCluster makes a cluster. It needs PostgreSQL's binaries, also where FENCEGATE_DATABASE_URL is set: that server is
// not for breaking. Without them the test is skipped, or fails where CI=true.
func NewCluster(t testing.TB, options ...Option) *Cluster {
	t.Helper()
	c := prepare(t, options)
	if !c.stranger {
		binaries, err := embeddedpg.FindBinaries()
		check(t, err)
		check(t, copyCached(await.Context(t), binaries, c.dataDir))
	}
	c.start()
	return c
}

// prepare returns a cluster that has not been started, and does not exist yet.
func prepare(t testing.TB, options []Option) *Cluster {
	t.Helper()
	if _, err := embeddedpg.FindBinaries(); errors.Is(err, embeddedpg.ErrNoBinaries) {
		process.Missing(t, err.Error())
	}
	dataDir, err := scratch.next()
	check(t, err)
	c := &Cluster{t: t, dataDir: dataDir, settings: map[string]string{
		// Files in the data directory instead of shared memory, which would outlive a Kill.
		"dynamic_shared_memory_type": "mmap",
		"deadlock_timeout":           deadlockTimeout,
	}}
	for _, option := range options {
		option(c)
	}
	t.Cleanup(c.discard)
	return c
}

func (c *Cluster) start() {
	c.t.Helper()
	running, err := embeddedpg.Start(await.Context(c.t), embeddedpg.Config{
		DataDir: c.dataDir, BinDir: c.binDir, Settings: c.settings})
	check(c.t, err)
	c.running = running
	if c.url != "" && c.url != running.URL() {
		c.t.Fatalf("the cluster has moved from %s to %s", c.url, running.URL())
	}
	c.url = running.URL()
}

// URL returns the connection URL of the database fencegate. It stays the same when the cluster is started again.
func (c *Cluster) URL() string { return c.url }

// DatabaseURL returns the connection URL of another database of the cluster, which need not exist.
func (c *Cluster) DatabaseURL(name string) string {
	return strings.Replace(c.url, "/fencegate?", "/"+url.PathEscape(name)+"?", 1)
}

// Socket returns the path of its socket.
func (c *Cluster) Socket() string { return filepath.Join(c.running.SocketDir(), ".s.PGSQL.5432") }

// PID returns the process id of the postmaster that runs or ran last.
func (c *Cluster) PID() int { return c.running.PID() }

// Kill kills all processes of the cluster at once and returns when they are dead: to clients, what a power failure is.
// It does nothing if the cluster is down.
func (c *Cluster) Kill() { c.running.Kill() }

// Freeze stops all processes of the cluster until thaw is called or the test ends. It stops the postmaster first, so
// that no process is born meanwhile.
func (c *Cluster) Freeze() (thaw func()) {
	c.t.Helper()
	check(c.t, syscall.Kill(c.PID(), syscall.SIGSTOP))
	processes, err := process.Family(c.PID())
	thaw = func() {
		for _, pid := range processes {
			_ = syscall.Kill(pid, syscall.SIGCONT) // its error is that the process has ended
		}
	}
	c.t.Cleanup(thaw)
	check(c.t, err)
	for _, pid := range processes {
		_ = syscall.Kill(pid, syscall.SIGSTOP)
	}
	return thaw
}

// Stop shuts the cluster down cleanly. It does nothing if the cluster is down.
func (c *Cluster) Stop() {
	c.t.Helper()
	check(c.t, c.running.Stop(await.Context(c.t)))
}

// Restart starts the cluster again on the data that it has, recovering if it was killed. One that is up is shut down
// first.
func (c *Cluster) Restart() {
	c.t.Helper()
	if c.running != nil {
		c.Stop()
	}
	c.start()
}

// Discard removes the cluster before the end of the test.
func (c *Cluster) Discard() {
	c.t.Helper()
	if c.running != nil {
		c.Kill()
	}
	check(c.t, removeCluster(c.dataDir))
}

// discard stops the cluster and removes its data. If the test failed, it shows what PostgreSQL said.
func (c *Cluster) discard() {
	if c.running != nil {
		stopAtOnce(c.running)
	}
	if c.t.Failed() {
		log, err := os.ReadFile(filepath.Join(c.dataDir, "postgres.log"))
		if err == nil {
			c.t.Logf("the log of PostgreSQL in %s:\n%s", c.dataDir, log[max(0, len(log)-8<<10):])
		}
	}
	if err := removeCluster(c.dataDir); err != nil {
		c.t.Error(err)
	}
}

// query returns the one value that a query yields.
func query[T any](c *Cluster, sql string, args ...any) (value T) {
	c.t.Helper()
	ctx := await.Context(c.t)
	conn, err := pgx.Connect(ctx, c.url)
	check(c.t, err)
	defer conn.Close(ctx)
	check(c.t, conn.QueryRow(ctx, sql, args...).Scan(&value))
	return value
}

// Network is a way to a cluster by TCP that can fail.
type Network struct {
	*network.Relay
	url string
}

// Network makes one that passes packets until the test ends.
func (c *Cluster) Network() *Network {
	c.t.Helper()
	made, err := network.NewRelay(c.t.Context(), "unix", c.Socket())
	check(c.t, err)
	c.t.Cleanup(made.Close)
	target, err := url.Parse(c.URL())
	check(c.t, err)
	host, port, err := net.SplitHostPort(made.Address())
	check(c.t, err)
	query := target.Query()
	query.Set("host", host)
	query.Set("port", port)
	target.RawQuery = query.Encode()
	return &Network{made, target.String()}
}

// URL returns the connection URL of the database fencegate by this network.
func (n *Network) URL() string { return n.url }
