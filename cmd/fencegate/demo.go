//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/google/uuid"

	"github.com/fencegate/fencegate/demo"
)

type demoCmds struct {
	Zombie demoZombieCmd `cmd:"" help:"A frozen worker wakes after its lease has expired, and writes: with the fence and without."`
	Worker demoWorkerCmd `cmd:"" hidden:"" help:"One worker of the story."`
}

type demoZombieCmd struct {
	DatabaseURL string `help:"PostgreSQL to play it on. Without one, a private PostgreSQL is run in a temporary directory." env:"FENCEGATE_DATABASE_URL" placeholder:"URL"`
	Output      string `help:"text, or json: the events, one a line." enum:"text,json" default:"text"`
}

// Help is shown by --help.
func (demoZombieCmd) Help() string {
	return "Runs a gateway and two worker processes; one is really frozen (SIGSTOP) past its lease and thawed (SIGCONT). Takes about ten seconds. " +
		"Exits 0 only if the fence kept the newer value and the unfenced twin lost it."
}

// Run tells the story.
func (c *demoZombieCmd) Run(ctx context.Context, streams streams) (err error) {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	db, err := c.database(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.close()) }()
	return demo.Zombie{
		Program: program, DatabaseURL: db.url, DatabaseName: db.name, Run: db.run, JSON: c.Output == "json", Out: streams.out,
	}.Tell(ctx)
}

// demoDatabase is the one that was named, or a private cluster that leaves nothing behind.
type demoDatabase struct {
	*database

	name string
	run  string // sets the names of this run apart, in a database that has seen others
	dir  string
}

func (c *demoZombieCmd) database(ctx context.Context) (*demoDatabase, error) {
	if c.DatabaseURL != "" {
		return &demoDatabase{database: &database{url: c.DatabaseURL}, name: "PostgreSQL at --database-url", run: "-" + uuid.NewString()[:8]}, nil
	}
	dir, err := os.MkdirTemp("", "fencegate-demo-db-")
	if err != nil {
		return nil, err
	}
	// As root PostgreSQL runs as another user, who must get through here to its own directory.
	if err := os.Chmod(dir, 0o711); err != nil { //nolint:gosec // nothing is in it but that directory
		return nil, err
	}
	db, err := databaseFlags{DataDir: filepath.Join(dir, "data")}.open(ctx, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return &demoDatabase{database: db, name: "a private PostgreSQL, durable, in a temporary directory", dir: dir}, nil
}

func (d *demoDatabase) close() error {
	err := d.database.close()
	if d.dir != "" {
		err = errors.Join(err, os.RemoveAll(d.dir))
	}
	return err
}

type demoWorkerCmd struct {
	Name        string
	URL         string
	Lock        string
	TTL         time.Duration
	Work        time.Duration
	DatabaseURL string
}

// Run is one worker of the story.
func (c *demoWorkerCmd) Run(ctx context.Context, streams streams) error {
	err := demo.Worker{
		Name: c.Name, GatewayURL: c.URL, Lock: c.Lock, TTL: c.TTL, Work: c.Work, DatabaseURL: c.DatabaseURL,
	}.Run(ctx, streams.out)
	if err != nil {
		return fmt.Errorf("worker %s: %w", c.Name, err)
	}
	return nil
}
