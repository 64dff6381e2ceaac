package demo

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencegate/fencegate/internal/embeddedpg"
	"github.com/fencegate/fencegate/lockclient"
)

const (
	unfencedTable = "fencegate_demo.unfenced"
	makeSQL       = "create schema if not exists fencegate_demo; create table if not exists " + unfencedTable +
		" (resource text primary key, value text not null)"
	removeSQL   = "drop schema if exists fencegate_demo cascade"
	stopTimeout = 10 * time.Second
	// clusterStopTimeout is for a private PostgreSQL, which writes a last checkpoint.
	clusterStopTimeout = 30 * time.Second
)

// setup is what a demo runs on: a gateway process with a table beside its schema, or gateways that already run.
type setup struct {
	*printer

	// program is the fencegate binary. databaseName describes the database.
	program, databaseURL, databaseName string

	database *pgx.Conn
	gateway  *gateway
	// urls are of the gateways. A uses the first, B the last. connect makes a client of one.
	urls        []string
	connect     func(url string, options ...lockclient.Option) (*lockclient.Client, error)
	environment []string // of workers
}

// start starts the gateway with flags, which migrates the database, and makes the table. After an error, too, stop is
// needed.
func (s *setup) start(ctx context.Context, flags ...string) (err error) {
	s.print(Event{Event: "database", Text: "the database: " + s.databaseName})
	if s.database, err = pgx.Connect(ctx, s.databaseURL); err != nil {
		return fmt.Errorf("the demo's database: %w", err)
	}
	if s.gateway, err = startGateway(ctx, s.program, append(flags, "--database-url", s.databaseURL)...); err != nil {
		return err
	}
	s.urls = []string{s.gateway.url}
	s.print(Event{Event: "gateway", Text: "the gateway: " + s.gateway.url})
	if _, err := s.database.Exec(ctx, makeSQL); err != nil {
		return fmt.Errorf("the demo's table: %w", err)
	}
	return nil
}

// stop ends the gateway and drops the table.
func (s *setup) stop() {
	if s.gateway != nil {
		s.gateway.stop()
	}
	if s.database != nil {
		ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
		defer cancel()
		_, _ = s.database.Exec(ctx, removeSQL)
		_ = s.database.Close(ctx)
	}
}

// follow prints the events of a process up to the event named until, or up to its end. It returns an error if the
// process fails, or ends before that event.
func (s *setup) follow(variant string, p *process, until string) error {
	for event := range p.events {
		event.Variant = variant
		s.print(event)
		if event.Event == until {
			return nil
		}
	}
	if err := p.wait(); err != nil {
		return fmt.Errorf("a worker failed: %w", err)
	}
	if until != "" {
		return errors.New("a worker ended too early")
	}
	return nil
}

func (s *setup) fencedValue(ctx context.Context, resource string) (string, error) {
	client, err := s.connect(s.urls[len(s.urls)-1])
	if err != nil {
		return "", err
	}
	defer client.Close()
	record, err := client.API().Get(ctx, resource, recordKey)
	return string(record.Value), err
}

func (s *setup) unfencedValue(ctx context.Context, resource string) (value string, err error) {
	err = s.database.QueryRow(ctx, "select value from "+unfencedTable+" where resource = $1", resource).Scan(&value)
	return value, err
}

// endedWithReader returns a context that also ends when nobody reads the output any more (| head), so that no process
// is left behind. When it has ended, the func replaces an error by the cause: what the processes report then says
// nothing.
func endedWithReader(ctx context.Context, out *io.Writer, err *error) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	*out = readOutput{*out, cancel}
	broken := make(chan os.Signal, 1) // never read: without it, the first write that fails ends this process
	signal.Notify(broken, syscall.SIGPIPE)
	return ctx, func() {
		if *err != nil && ctx.Err() != nil {
			*err = context.Cause(ctx)
		}
		signal.Stop(broken)
		cancel(nil)
	}
}

// readOutput is an output that reports when it can't be written to any more.
type readOutput struct {
	io.Writer

	unread context.CancelCauseFunc
}

func (o readOutput) Write(text []byte) (int, error) {
	n, err := o.Writer.Write(text)
	if err != nil {
		o.unread(err)
	}
	return n, err
}

// gateway is "fencegate serve" as a process of its own.
type gateway struct {
	url string
	cmd *exec.Cmd
	log bytes.Buffer // of a process that has ended
}

// startGateway runs program with "serve" and args, and returns once it serves.
func startGateway(ctx context.Context, program string, args ...string) (*gateway, error) {
	g := &gateway{cmd: exec.Command(program, append([]string{"serve", "--listen", "127.0.0.1:0"}, args...)...)}
	g.cmd.Stderr = &g.log
	out, err := g.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := g.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the gateway: %w", err)
	}
	defer context.AfterFunc(ctx, func() { _ = g.cmd.Process.Kill() })()
	line, _ := bufio.NewReader(out).ReadString('\n')
	if _, url, serves := strings.Cut(line, " serves on "); serves {
		g.url = strings.TrimSpace(url)
		return g, nil
	}
	err = g.cmd.Wait()
	return nil, fmt.Errorf("the gateway ended before it served: %w\n%s", err, &g.log)
}

// stop ends the process, which finishes the requests under way.
func (g *gateway) stop() {
	if g.cmd.Process.Signal(syscall.SIGTERM) != nil {
		_ = g.cmd.Process.Kill()
	}
	_ = g.cmd.Wait()
}

// PrivateName describes the database of OpenPrivate.
const PrivateName = "a private PostgreSQL, durable, in a temporary directory"

// OpenPrivate runs a private PostgreSQL in a temporary directory, both of which the caller ends with closeAll.
func OpenPrivate(ctx context.Context) (url string, closeAll func() error, err error) {
	dir, err := os.MkdirTemp("", "fencegate-scratch-")
	if err != nil {
		return "", nil, err
	}
	// If root starts it, PostgreSQL runs as another user, which must get through here to its own directory.
	err = os.Chmod(dir, 0o711) //nolint:gosec // nothing is in it but that directory
	var cluster *embeddedpg.Cluster
	if err == nil {
		config := embeddedpg.Config{DataDir: filepath.Join(dir, "data"), Logger: slog.New(slog.DiscardHandler)}
		cluster, err = embeddedpg.Start(ctx, config)
	}
	if err != nil {
		return "", nil, errors.Join(err, os.RemoveAll(dir))
	}
	return cluster.URL(), func() error {
		ctx, cancel := context.WithTimeout(context.Background(), clusterStopTimeout)
		defer cancel()
		return errors.Join(cluster.Stop(ctx), os.RemoveAll(dir))
	}, nil
}
