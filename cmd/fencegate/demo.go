package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/fencegate/fencegate/demo"
	"github.com/fencegate/fencegate/lockclient"
)

type demoCmds struct {
	Zombie  demoZombieCmd  `cmd:"" help:"A frozen worker wakes after its lease has expired, and writes: with the fence and without it."`
	GCPause demoGCPauseCmd `cmd:"" name:"gc-pause" help:"A worker's runtime stops for a garbage collection until its lease has expired."`
	Claim   demoClaimCmd   `cmd:"" help:"A frozen worker wakes after others have done the jobs that it had claimed, and completes them: with the fence and without it."`
	Worker  demoWorkerCmd  `cmd:"" hidden:"" help:"One worker of the round."`
}

// demoPlace are the flags of all demos.
type demoPlace struct {
	outputFlag
	DatabaseURL string `help:"PostgreSQL to use. Without one, a private PostgreSQL is run in a temporary directory." env:"FENCEGATE_DATABASE_URL" placeholder:"URL"`
}

// demoFlags are those of demos that run once, or again and again before running gateways.
type demoFlags struct {
	demoPlace
	connectionFlags

	Gateway []string      `help:"Run the fenced variant again and again, on these running gateways. Several must use one database." env:"FENCEGATE_GATEWAY" placeholder:"URL"`
	Every   time.Duration `help:"With --gateway: the time from the start of one round to the next. A round takes about four seconds." default:"10s"`
	Rounds  int           `help:"With --gateway: how many rounds to run; 0: until interrupted." default:"0"`
}

const demoExit = " Exits 0 only if the fence kept the newer value and the unfenced variant lost it. With --gateway, " +
	"exits 1 as soon as a stale write was stored."

// run runs a demo: before the gateways, if there are any, else with a private PostgreSQL unless one is named.
func (f demoFlags) run(
	ctx context.Context, con *console, demonstrate func(context.Context, demo.Config) error,
) error {
	if f.Output == formatYAML || f.Output == formatEnv {
		return usagef("--output %s: a demo is shown as text, or its events as json", f.Output)
	}
	program, err := os.Executable()
	if err != nil {
		return err
	}
	config := demo.Config{
		Program: program, DatabaseURL: f.DatabaseURL, DatabaseName: "PostgreSQL at --database-url",
		Suffix: "-" + uuid.NewString()[:8], JSON: f.Output == formatJSON, Out: con.out,
	}
	switch {
	case len(f.Gateway) > 0:
		err = f.loop(&config)
	case config.DatabaseURL == "":
		var closeAll func() error
		if config.DatabaseURL, closeAll, err = demo.OpenPrivate(ctx); err == nil {
			config.Suffix, config.DatabaseName = "", demo.PrivateName
			return errors.Join(demonstrate(ctx, config), closeAll())
		}
	default:
		err = connect(ctx, con, "--database-url", f.DatabaseURL, func(*pgx.Conn) error { return nil })
	}
	if err != nil {
		return err
	}
	return demonstrate(ctx, config)
}

// loop has the demo run before the gateways.
func (f demoFlags) loop(config *demo.Config) error {
	config.Connect = func(url string, options ...lockclient.Option) (*lockclient.Client, error) {
		return f.connect("--gateway", url, options...)
	}
	for _, url := range f.Gateway {
		client, err := config.Connect(url)
		if err != nil {
			return err
		}
		client.Close()
	}
	if err := checkEvery(f.Every); err != nil {
		return err
	}
	if f.Rounds < 0 {
		return usagef("--rounds is %d, it must not be negative", f.Rounds)
	}
	config.Gateways, config.Every, config.Rounds = f.Gateway, f.Every, f.Rounds
	config.Environment = f.environment()
	return nil
}

func checkEvery(every time.Duration) error {
	if every < time.Second || every > time.Hour {
		return usagef("--every is %s, it must be 1s to 1h", every)
	}
	return nil
}

type demoZombieCmd struct{ demoFlags }

// Help is shown by --help.
func (demoZombieCmd) Help() string {
	return "Runs a gateway and two worker processes; one is really frozen (SIGSTOP) past its lease and thawed " +
		"(SIGCONT). Takes about ten seconds." + demoExit
}

// Run runs the demo.
func (c *demoZombieCmd) Run(ctx context.Context, con *console) error {
	return c.run(ctx, con, func(ctx context.Context, config demo.Config) error {
		return demo.Zombie{Config: config}.Run(ctx)
	})
}

type demoGCPauseCmd struct{ demoFlags }

// Help is shown by --help.
func (demoGCPauseCmd) Help() string {
	return "Runs a gateway and two worker processes. One computes in a loop that Go can't interrupt " +
		"(GODEBUG=asyncpreemptoff=1), so that a garbage collection stops all its other goroutines, the heartbeat of its " +
		"lease among them, until the loop ends. Takes about ten seconds." + demoExit
}

// Run runs the demo.
func (c *demoGCPauseCmd) Run(ctx context.Context, con *console) error {
	return c.run(ctx, con, demo.GCPause)
}

type demoClaimCmd struct{ demoPlace }

// Help is shown by --help.
func (demoClaimCmd) Help() string {
	return "Two workers take jobs of one table, by fence.claim and by \"for update skip locked\" with a deadline. One is " +
		"really frozen (SIGSTOP). The other takes its jobs over and does them. Takes about ten seconds. Exits 0 only if no " +
		"job was done twice with the fence, and some were without it."
}

// Run runs the demo.
func (c *demoClaimCmd) Run(ctx context.Context, con *console) error {
	return demoFlags{demoPlace: c.demoPlace}.run(ctx, con, demo.Claim)
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
	Jobs        string
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
		Busy: c.Busy, Jobs: c.Jobs, Heartbeat: c.Heartbeat, DatabaseURL: c.DatabaseURL, DatabaseVia: c.DatabaseVia,
	}.Run(ctx, streams.out)
	if err != nil {
		return fmt.Errorf("worker %s: %w", c.Name, err)
	}
	return nil
}
