//go:build unix

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/fencegate/fencegate/demo"
)

type demoCmds struct {
	Zombie demoZombieCmd `cmd:"" help:"A frozen worker wakes after its lease has expired, and writes: with the fence and without."`
	Worker demoWorkerCmd `cmd:"" hidden:"" help:"One worker of the story."`
}

type demoZombieCmd struct {
	scratchFlags

	Output string `help:"text, or json: the events, one a line." enum:"text,json" default:"text"`
}

// Help is shown by --help.
func (demoZombieCmd) Help() string {
	return "Runs a gateway and two worker processes; one is really frozen (SIGSTOP) past its lease and thawed (SIGCONT). Takes about ten seconds. " +
		"Exits 0 only if the fence kept the newer value and the unfenced twin lost it."
}

// Run tells the story.
func (c *demoZombieCmd) Run(ctx context.Context, streams streams) error {
	return c.use(ctx, func(program string, db *scratch) error {
		return demo.Zombie{
			Program: program, DatabaseURL: db.url, DatabaseName: db.name, Run: db.run, JSON: c.Output == "json", Out: streams.out,
		}.Tell(ctx)
	})
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
