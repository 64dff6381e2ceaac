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
	Zombie demoZombieCmd `cmd:"" help:"A frozen worker wakes after its lease has expired, and writes: with the fence and without it."`
	SQL    demoSQLCmd    `cmd:"" name:"sql" help:"A psql process frozen in its transaction wakes, and writes to a table: with the fence and without it."`
	Worker demoWorkerCmd `cmd:"" hidden:"" help:"One worker of the round."`
}

type demoZombieCmd struct {
	DatabaseURL string `help:"PostgreSQL to use. Without one, a private PostgreSQL is run in a temporary directory." env:"FENCEGATE_DATABASE_URL" placeholder:"URL"`

	Gateway []string      `help:"Run the fenced variant again and again, on these running gateways. Several must use one database." env:"FENCEGATE_GATEWAY" placeholder:"URL"`
	Every   time.Duration `help:"With --gateway: the time from the start of one round to the next. A round takes about four seconds." default:"10s"`
	Rounds  int           `help:"With --gateway: how many rounds to run; 0: until interrupted." default:"0"`
	Output  string        `help:"text, or json: the events, one a line." enum:"text,json" default:"text"`
}

// Help is shown by --help.
func (demoZombieCmd) Help() string {
	return "Runs a gateway and two worker processes; one is really frozen (SIGSTOP) past its lease and thawed " +
		"(SIGCONT). Takes about ten seconds. " +
		"Exits 0 only if the fence kept the newer value and the unfenced variant lost it. With --gateway, exits 1 as soon as " +
		"a zombie's write was stored."
}

// Run runs the demo.
func (c *demoZombieCmd) Run(ctx context.Context, streams streams) (err error) {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	if len(c.Gateway) > 0 {
		return c.loop(ctx, program, streams)
	}
	zombie := demo.Zombie{
		Program: program, DatabaseURL: c.DatabaseURL, DatabaseName: "PostgreSQL at --database-url",
		Suffix: "-" + uuid.NewString()[:8], JSON: c.Output == "json", Out: streams.out,
	}
	if c.DatabaseURL == "" {
		url, closeAll, openErr := demo.OpenPrivate(ctx)
		if openErr != nil {
			return openErr
		}
		defer func() { err = errors.Join(err, closeAll()) }()
		zombie.DatabaseURL, zombie.Suffix, zombie.DatabaseName = url, "", demo.PrivateName
	}
	return zombie.Run(ctx)
}

type demoSQLCmd struct {
	DatabaseURL string `help:"PostgreSQL to use. Without one, a private PostgreSQL is run in a temporary directory." env:"FENCEGATE_DATABASE_URL" placeholder:"URL"`
	Psql        string `help:"PostgreSQL's client." default:"psql" placeholder:"PATH"`
	Output      string `help:"text, or json: the events, one a line." enum:"text,json" default:"text"`
}

// Help is shown by --help.
func (demoSQLCmd) Help() string {
	return "Runs a gateway, which grants the leases, and psql processes that write to tables of their own schema, " +
		"protected by fence.protect or plain. One psql is really frozen (SIGSTOP) in its transaction past its lease and " +
		"thawed (SIGCONT). Takes about ten seconds. Exits 0 only if the fence kept the newer value and the plain table " +
		"lost it."
}

// Run runs the demo.
func (c *demoSQLCmd) Run(ctx context.Context, streams streams) (err error) {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	sql := demo.SQL{
		Program: program, Psql: c.Psql, DatabaseURL: c.DatabaseURL, DatabaseName: "PostgreSQL at --database-url",
		Suffix: "-" + uuid.NewString()[:8], JSON: c.Output == "json", Out: streams.out,
	}
	if c.DatabaseURL == "" {
		url, closeAll, openErr := demo.OpenPrivate(ctx)
		if openErr != nil {
			return openErr
		}
		defer func() { err = errors.Join(err, closeAll()) }()
		sql.DatabaseURL, sql.Suffix, sql.DatabaseName = url, "", demo.PrivateName
	}
	return sql.Run(ctx)
}

// loop runs the fenced variant again and again, before gateways that run.
func (c *demoZombieCmd) loop(ctx context.Context, program string, streams streams) error {
	for _, url := range c.Gateway {
		client, err := lockclient.New(url, withoutLog)
		if err != nil {
			return usagef("--gateway: %v", err)
		}
		client.Close()
	}
	switch {
	case c.Every < time.Second || c.Every > time.Hour:
		return usagef("--every is %s, it must be 1s to 1h", c.Every)
	case c.Rounds < 0:
		return usagef("--rounds is %d, it must not be negative", c.Rounds)
	}
	return demo.Loop{
		Program: program, URLs: c.Gateway, Every: c.Every, Rounds: c.Rounds, JSON: c.Output == "json", Out: streams.out,
	}.Run(ctx)
}

type demoWorkerCmd struct {
	Name        string
	URL         string
	Lock        string
	TTL         time.Duration
	Work        time.Duration
	DatabaseURL string
}

// Run is one worker of the round.
func (c *demoWorkerCmd) Run(ctx context.Context, streams streams) error {
	err := demo.Worker{
		Name: c.Name, GatewayURL: c.URL, Lock: c.Lock, TTL: c.TTL, Work: c.Work, DatabaseURL: c.DatabaseURL,
	}.Run(ctx, streams.out)
	if err != nil {
		return fmt.Errorf("worker %s: %w", c.Name, err)
	}
	return nil
}
