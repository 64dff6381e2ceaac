package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/google/uuid"

	"github.com/fencegate/fencegate/demo"
	"github.com/fencegate/fencegate/lockclient"
)

type demoCmds struct {
	Zombie  demoZombieCmd  `cmd:"" help:"A frozen worker wakes after its lease has expired, and writes: with the fence and without it."`
	GCPause demoGCPauseCmd `cmd:"" name:"gc-pause" help:"A worker's runtime stops for a garbage collection until its lease has expired."`
	Worker  demoWorkerCmd  `cmd:"" hidden:"" help:"One worker of the round."`
}

type demoFlags struct {
	outputFlag
	DatabaseURL string `help:"PostgreSQL to use. Without one, a private PostgreSQL is run in a temporary directory." env:"FENCEGATE_DATABASE_URL" placeholder:"URL"`
}

// run runs a demo, with a private PostgreSQL unless one is named.
func (f demoFlags) run(
	ctx context.Context, streams streams, demonstrate func(context.Context, demo.Config) error,
) (err error) {
	config, err := f.config(streams)
	if err != nil {
		return err
	}
	if config.DatabaseURL == "" {
		url, closeAll, err := demo.OpenPrivate(ctx)
		if err != nil {
			return err
		}
		config.DatabaseURL, config.Suffix, config.DatabaseName = url, "", demo.PrivateName
		return errors.Join(demonstrate(ctx, config), closeAll())
	}
	return demonstrate(ctx, config)
}

func (f demoFlags) config(streams streams) (demo.Config, error) {
	if f.Output == formatYAML || f.Output == formatEnv {
		return demo.Config{}, usagef("--output %s: a demo is shown as text, or its events as json", f.Output)
	}
	program, err := os.Executable()
	return demo.Config{
		Program: program, DatabaseURL: f.DatabaseURL, DatabaseName: "PostgreSQL at --database-url",
		Suffix: "-" + uuid.NewString()[:8], JSON: f.Output == formatJSON, Out: streams.out,
	}, err
}

// demoLoopFlags are those of demos that also run before running gateways.
type demoLoopFlags struct {
	demoFlags
	connectionFlags

	Gateway []string      `help:"Run the fenced variant again and again, on these running gateways. Several must use one database." env:"FENCEGATE_GATEWAY" placeholder:"URL"`
	Every   time.Duration `help:"With --gateway: the time from the start of one round to the next. A round takes about four seconds." default:"10s"`
	Rounds  int           `help:"With --gateway: how many rounds to run; 0: until interrupted." default:"0"`
}

const demoExit = " Exits 0 only if the fence kept the newer value and the unfenced variant lost it. With --gateway, " +
	"exits 1 as soon as a stale write was stored."

func (f demoLoopFlags) run(
	ctx context.Context, streams streams, demonstrate func(context.Context, demo.Config) error,
) error {
	if len(f.Gateway) == 0 {
		return f.demoFlags.run(ctx, streams, demonstrate)
	}
	for _, url := range f.Gateway {
		client, err := f.connect("--gateway", url)
		if err != nil {
			return err
		}
		client.Close()
	}
	switch {
	case f.Every < time.Second || f.Every > time.Hour:
		return usagef("--every is %s, it must be 1s to 1h", f.Every)
	case f.Rounds < 0:
		return usagef("--rounds is %d, it must not be negative", f.Rounds)
	}
	config, err := f.config(streams)
	if err != nil {
		return err
	}
	config.Gateways, config.Every, config.Rounds = f.Gateway, f.Every, f.Rounds
	config.Connect = func(url string, options ...lockclient.Option) (*lockclient.Client, error) {
		return f.connect("--gateway", url, options...)
	}
	config.Environment = f.connectionFlags.environment()
	return demonstrate(ctx, config)
}

type demoZombieCmd struct{ demoLoopFlags }

// Help is shown by --help.
func (demoZombieCmd) Help() string {
	return "Runs a gateway and two worker processes; one is really frozen (SIGSTOP) past its lease and thawed " +
		"(SIGCONT). Takes about ten seconds." + demoExit
}

// Run runs the demo.
func (c *demoZombieCmd) Run(ctx context.Context, streams streams) error {
	return c.run(ctx, streams, func(ctx context.Context, config demo.Config) error {
		return demo.Zombie{Config: config}.Run(ctx)
	})
}

type demoGCPauseCmd struct{ demoLoopFlags }

// Help is shown by --help.
func (demoGCPauseCmd) Help() string {
	return "Runs a gateway and two worker processes. One computes in a loop that Go can't interrupt " +
		"(GODEBUG=asyncpreemptoff=1), so that a garbage collection stops all its other goroutines, the heartbeat of its " +
		"lease among them, until the loop ends. Takes about ten seconds." + demoExit
}

// Run runs the demo.
func (c *demoGCPauseCmd) Run(ctx context.Context, streams streams) error {
	return c.run(ctx, streams, demo.GCPause)
}

type demoWorkerCmd struct {
	connectionFlags

	Name        string
	URL         string
	GatewayVia  string
	Lock        string
	TTL         time.Duration
	Work        time.Duration
	Told        bool
	Busy        string
	Heartbeat   bool
	DatabaseURL string
	DatabaseVia string
}

// Run is one worker of the round.
func (c *demoWorkerCmd) Run(ctx context.Context, streams streams) error {
	config, err := c.tls()
	if err != nil {
		return err
	}
	err = demo.Worker{
		TLS: config, Options: c.token(),
		Name: c.Name, GatewayURL: c.URL, GatewayVia: c.GatewayVia, Lock: c.Lock, TTL: c.TTL, Work: c.Work, Told: c.Told,
		Busy: c.Busy, Heartbeat: c.Heartbeat, DatabaseURL: c.DatabaseURL, DatabaseVia: c.DatabaseVia,
	}.Run(ctx, streams.out)
	if err != nil {
		return fmt.Errorf("worker %s: %w", c.Name, err)
	}
	return nil
}
