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
	Zombie        demoZombieCmd        `cmd:"" help:"A frozen worker wakes after its lease has expired, and writes: with the fence and without it."`
	Partition     demoPartitionCmd     `cmd:"" help:"A worker is cut off by the network until its lease has expired, and its write arrives."`
	DelayedWrite  demoDelayedWriteCmd  `cmd:"" help:"A write that was sent in time is held in the network until the lease has expired."`
	GCPause       demoGCPauseCmd       `cmd:"" name:"gc-pause" help:"A worker's runtime stops for a garbage collection until its lease has expired."`
	RedisFailover demoRedisFailoverCmd `cmd:"" help:"Redis loses a lock in a failover, and grants it twice."`
	RedlockClock  demoRedlockClockCmd  `cmd:"" help:"The clock of one of five Redis servers jumps, and Redlock grants a lock twice."`
	Access        demoAccessCmd        `cmd:"" help:"Two gateways accept API keys, client certificates and tokens, for the names that each is for, until it ends."`
	Worker        demoWorkerCmd        `cmd:"" hidden:"" help:"One worker of the round."`
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

const demoExit = " Exits 0 only if the fence kept the newer value and the unfenced variant lost it."

const demoLoopExit = demoExit + " With --gateway, exits 1 as soon as a stale write was stored."

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
		"(SIGCONT). Takes about ten seconds." + demoLoopExit
}

// Run runs the demo.
func (c *demoZombieCmd) Run(ctx context.Context, streams streams) error {
	return c.run(ctx, streams, func(ctx context.Context, config demo.Config) error {
		return demo.Zombie{Config: config}.Run(ctx)
	})
}

type demoPartitionCmd struct{ demoLoopFlags }

// Help is shown by --help.
func (demoPartitionCmd) Help() string {
	return "Runs a gateway and two worker processes. One reaches the gateway, and in the unfenced variant the database, by " +
		"a proxy that stops to forward. Its heartbeats fail and its lease expires, but it works on; what it sends arrives " +
		"when the proxy forwards again. Takes about ten seconds." + demoLoopExit
}

// Run runs the demo.
func (c *demoPartitionCmd) Run(ctx context.Context, streams streams) error {
	return c.run(ctx, streams, demo.Partition)
}

type demoDelayedWriteCmd struct{ demoLoopFlags }

// Help is shown by --help.
func (demoDelayedWriteCmd) Help() string {
	return "Runs a gateway and two worker processes. One sends its write while its lease is valid, and a proxy holds the " +
		"request until another worker has written. Takes about ten seconds." + demoLoopExit
}

// Run runs the demo.
func (c *demoDelayedWriteCmd) Run(ctx context.Context, streams streams) error {
	return c.run(ctx, streams, demo.DelayedWrite)
}

type demoGCPauseCmd struct{ demoLoopFlags }

// Help is shown by --help.
func (demoGCPauseCmd) Help() string {
	return "Runs a gateway and two worker processes. One computes in a loop that Go can't interrupt " +
		"(GODEBUG=asyncpreemptoff=1), so that a garbage collection stops all its other goroutines, the heartbeat of its " +
		"lease among them, until the loop ends. Takes about ten seconds." + demoLoopExit
}

// Run runs the demo.
func (c *demoGCPauseCmd) Run(ctx context.Context, streams streams) error {
	return c.run(ctx, streams, demo.GCPause)
}

type demoRedisFailoverCmd struct{ demoFlags }

// Help is shown by --help.
func (demoRedisFailoverCmd) Help() string {
	return "Runs a Redis master, its replica, a Sentinel, a gateway that keeps leases there (serve --leases redis) and two " +
		"worker processes. The master dies before it has replicated the lease of the first worker, so the promoted replica " +
		"grants the lock again: both leases run at the same time. Needs redis-server. Takes about 15 seconds." + demoExit
}

// Run runs the demo.
func (c *demoRedisFailoverCmd) Run(ctx context.Context, streams streams) error {
	return c.run(ctx, streams, demo.RedisFailover)
}

type demoRedlockClockCmd struct {
	demoFlags

	Libfaketime string `help:"The library that shifts a server's clock. Default: where the package libfaketime installs it." placeholder:"PATH"`
}

// Help is shown by --help.
func (demoRedlockClockCmd) Help() string {
	return "Runs five Redis servers, a gateway that keeps leases in a majority of them (serve --leases redlock) and two " +
		"worker processes. The clock of one server jumps, so it forgets the lease of the first worker too early, and with two " +
		"servers that the first worker did not reach it grants the lock again: both leases run at the same time. Needs " +
		"redis-server and libfaketime. Takes about 15 seconds." + demoExit
}

// Run runs the demo.
func (c *demoRedlockClockCmd) Run(ctx context.Context, streams streams) error {
	return c.run(ctx, streams, func(ctx context.Context, config demo.Config) error {
		return demo.RedlockClock{Config: config, Libfaketime: c.Libfaketime}.Run(ctx)
	})
}

type demoAccessCmd struct{ demoFlags }

// Help is shown by --help.
func (demoAccessCmd) Help() string {
	return "Runs two gateways with TLS and --auth=keys,tokens,certificates, and an issuer of tokens. Shows a key that is " +
		"made, replaced and revoked, a client certificate whose SPIFFE ID is the caller's name, and tokens of an issuer that " +
		"replaces its key. Takes about twelve seconds. Exits 0 only if each credential was accepted where, and as long as, " +
		"it must be, and refused otherwise."
}

// Run runs the demo.
func (c *demoAccessCmd) Run(ctx context.Context, streams streams) error {
	return c.run(ctx, streams, demo.Access)
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
