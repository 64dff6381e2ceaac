// Package rig is what all measurements share: a database, gateways, rounds in which targets take turns, ratios, goals
// and tables.
package rig

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencegate/fencegate/internal/embeddedpg"
	"github.com/fencegate/fencegate/internal/test/testenv/gateway"
	"github.com/fencegate/fencegate/internal/test/testenv/peers"
	"github.com/fencegate/fencegate/store/postgres"
)

// Servers are the flags that say where to measure.
type Servers struct {
	DatabaseURL string `help:"PostgreSQL to use. Default: a private one in a temporary directory." env:"FENCEGATE_DATABASE_URL" placeholder:"URL"`
	Program     string `help:"fencegate. Default: the program of this name beside this one." placeholder:"FILE"`
	Output      string `help:"text, or json: all samples." enum:"text,json" default:"text"`
	Goals       bool   `help:"Compare what was measured with the targets that we set ourselves."`
}

// Pace are the flags that say how long to measure. A command sets its own defaults, as ${clients} and the like.
type Pace struct {
	Clients     []int         `help:"Numbers of clients to measure with." default:"${clients}"`
	Rounds      int           `help:"How often everything is measured." default:"${rounds}"`
	Duration    time.Duration `help:"How long one target is measured in a round." default:"${duration}"`
	WarmUp      time.Duration `help:"How long it is run before that." default:"${warmup}"`
	Connections int           `help:"Connections to the database, of each gateway and of a store in the load's process." default:"16"`
}

// Validate is called by kong.
func (p Pace) Validate() error {
	if len(p.Clients) == 0 || slices.Min(p.Clients) < 1 || p.Rounds < 1 || p.Duration <= 0 || p.WarmUp < 0 ||
		p.Connections < 2 {
		return errors.New("--clients, --rounds and --duration must be positive, and --connections at least 2")
	}
	return nil
}

// Rig is what the workloads share: a database, gateways and peers, rounds in turn, and the report.
type Rig struct {
	Servers
	Pace

	Report Report
	// URL is the database's; Control is for queries between measurements.
	URL     string
	Control *pgxpool.Pool
	// Store is in the load's process, over the migrated database.
	Store *postgres.Store
	// Prefix is above the names of all locks and resources of this run.
	Prefix string
	// ConnectionsMax is what a target may have of the server's connections.
	ConnectionsMax int
	// Background is what PostgreSQL uses when nothing is called, in seconds of CPU a second. It is not counted for calls.
	Background float64

	log     io.Writer
	tuned   map[string]int
	closers []func() error
}

// Private says how a private PostgreSQL is run: with settings over its own, and flushes that take longer by FlushDelay.
type Private struct {
	Settings   map[string]string
	FlushDelay time.Duration
}

const (
	stopTimeout = 30 * time.Second
	// connectionsReserved are for all else than the target that is measured.
	connectionsReserved = 48
)

// Open starts the database, or connects to that of --database-url, and migrates it. Progress is written to log. The
// caller closes the rig also if Open fails.
func Open(ctx context.Context, servers Servers, pace Pace, private Private, log io.Writer) (r *Rig, err error) {
	r = &Rig{
		Servers: servers, Pace: pace, URL: servers.DatabaseURL, log: log, tuned: map[string]int{},
		Prefix: fmt.Sprintf("bench/%d", time.Now().UnixNano()),
		Report: Report{Peers: map[string]string{}, Skipped: map[string]string{}, Samples: []Sample{}, Failed: []string{}},
	}
	if r.URL == "" {
		if err := r.startDatabase(ctx, private); err != nil {
			return r, err
		}
	} else if private.FlushDelay != 0 {
		return r, fmt.Errorf("a way to slow the flushes of the database at --database-url down: %w", peers.ErrAbsent)
	}
	if r.Control, err = OpenPool(ctx, r.URL, 4); err != nil {
		return r, err
	}
	r.OnEnd(r.Control.Close)
	if r.Report.Environment, err = readEnvironment(ctx, r.Control); err != nil {
		return r, err
	}
	r.Report.FlushMicroseconds += float64(private.FlushDelay.Microseconds())
	connectionsMax, err := strconv.Atoi(r.Report.PostgreSQL["max_connections"])
	if err != nil {
		return r, fmt.Errorf("max_connections: %w", err)
	}
	r.ConnectionsMax = max(1, connectionsMax-connectionsReserved)
	r.Store, err = r.OpenStore(ctx, r.URL)
	return r, err
}

func (r *Rig) startDatabase(ctx context.Context, private Private) error {
	dir, err := r.TempDir()
	if err != nil {
		return err
	}
	config := embeddedpg.Config{DataDir: filepath.Join(dir, "data"), Settings: private.Settings}
	if private.FlushDelay != 0 {
		if config.BinDir, err = slowPrograms(ctx, filepath.Join(dir, "bin"), private.FlushDelay); err != nil {
			return err
		}
	}
	cluster, err := embeddedpg.Start(ctx, config)
	if err != nil {
		return err
	}
	r.OnClose(func() error {
		ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
		defer cancel()
		return cluster.Stop(ctx)
	})
	r.URL = cluster.URL()
	return nil
}

// TempDir makes a directory until the rig is closed. If root starts it, PostgreSQL runs as another user, which must get
// through here to its own directory.
func (r *Rig) TempDir() (string, error) {
	dir, err := os.MkdirTemp("", "fencegate-bench-")
	if err != nil {
		return "", err
	}
	r.OnClose(func() error { return os.RemoveAll(dir) })
	return dir, os.Chmod(dir, 0o711) //nolint:gosec // nothing is in it but files that have their own permissions
}

// OpenPool makes a pool of so many connections.
func OpenPool(ctx context.Context, databaseURL string, connections int) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(databaseURL)
	if err != nil {
		return nil, fmt.Errorf("--database-url: %w", err)
	}
	config.MaxConns = int32(connections)
	config.ConnConfig.RuntimeParams["jit"] = "off"
	return pgxpool.NewWithConfig(ctx, config)
}

// OpenStore opens a store until the rig is closed, and migrates its database.
func (r *Rig) OpenStore(ctx context.Context, databaseURL string) (*postgres.Store, error) {
	st, err := postgres.Open(ctx, postgres.Config{DatabaseURL: databaseURL, ConnectionsMax: max(2, r.Connections)})
	if err != nil {
		return nil, err
	}
	r.OnEnd(st.Close)
	err = st.Migrate(ctx)
	return st, err
}

// OnClose adds what ends when the rig is closed. What was added last ends first.
func (r *Rig) OnClose(end func() error) { r.closers = append(r.closers, end) }

// OnEnd is OnClose for what can't fail.
func (r *Rig) OnEnd(end func()) {
	r.OnClose(func() error {
		end()
		return nil
	})
}

// Close ends everything.
func (r *Rig) Close() error {
	var errs []error
	for _, end := range slices.Backward(r.closers) {
		errs = append(errs, end())
	}
	return errors.Join(errs...)
}

// Progress reports what happens.
func (r *Rig) Progress(format string, args ...any) { _, _ = fmt.Fprintf(r.log, format+"\n", args...) }

// Gateway runs a gateway until the rig is closed. All load comes from one address, so no caller is limited.
func (r *Rig) Gateway(ctx context.Context, flags ...string) (*gateway.Process, error) {
	program := r.Program
	if program == "" {
		self, err := os.Executable()
		if err != nil {
			return nil, err
		}
		program = filepath.Join(filepath.Dir(self), "fencegate")
	}
	gateway, err := gateway.Run(ctx, program, append([]string{
		"--database-url", r.URL, "--database-connections-max", strconv.Itoa(max(2, r.Connections)), "--log-level", "error",
		"--caller-requests-max", "0",
	}, flags...)...)
	if err == nil {
		r.OnClose(gateway.Stop)
	}
	return gateway, err
}

// TakesPart notes what is not on this machine, and reports whether err is nil. It returns all other errors.
func (r *Rig) TakesPart(what string, err error) (bool, error) {
	if errors.Is(err, peers.ErrAbsent) {
		r.Report.Skipped[what] = err.Error()
		r.Progress("skipped: %s: %s", what, err)
		return false, nil
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", what, err)
	}
	return err == nil, err
}

// Keep stops a peer when the rig is closed, and puts its version into the report under a name. It returns the error of
// the peer's start.
func (r *Rig) Keep(name string, peer *peers.Peer, err error) error {
	if err == nil {
		r.OnClose(peer.Stop)
		r.Report.Peers[name] = peer.Version
	}
	return err
}

// OtherDatabase makes another database on the same server until the rig is closed, and returns its URL.
func (r *Rig) OtherDatabase(ctx context.Context, name string) (string, error) {
	other, err := OtherDatabase(r.URL, name)
	if err != nil {
		return "", err
	}
	drop := "drop database if exists " + name + " with (force)"
	if err := r.Execute(ctx, drop, "create database "+name); err != nil {
		return "", err
	}
	r.OnClose(func() error { return r.Execute(context.WithoutCancel(ctx), drop) })
	return other, nil
}

// Execute executes statements one by one.
func (r *Rig) Execute(ctx context.Context, statements ...string) error {
	for _, sql := range statements {
		if _, err := r.Control.Exec(ctx, sql); err != nil {
			return fmt.Errorf("%s: %w", sql, err)
		}
	}
	return nil
}

// Write writes the report, and returns an error if a measurement failed.
func (r *Rig) Write(out io.Writer, goals func(Report) []Goal) error {
	var judged []Goal
	if r.Goals && goals != nil {
		judged = goals(r.Report)
	}
	write := func() error { return r.Report.WriteText(out, judged) }
	if r.Output == "json" {
		write = func() error { return r.Report.WriteJSON(out) }
	}
	if err := write(); err != nil {
		return err
	}
	if len(r.Report.Failed) > 0 {
		return fmt.Errorf("%d measurements failed; they are named above", len(r.Report.Failed))
	}
	return nil
}

// OtherDatabase is the URL of another database of the same server.
func OtherDatabase(databaseURL, name string) (string, error) {
	parsed, err := url.Parse(databaseURL)
	if err != nil || parsed.Scheme == "" {
		return "", errors.New("another database of the server needs a database URL that begins with postgres://")
	}
	parsed.Path = "/" + name
	return parsed.String(), nil
}
