// Command fencegate-demo runs the demos that need more than fencegate and PostgreSQL: zombies of etcd, ZooKeeper and Redis
// locks, networks that fail, leases in Redis that are granted twice, credentials.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/alecthomas/kong"
	"github.com/google/uuid"

	"github.com/fencegate/fencegate/demo"
	"github.com/fencegate/fencegate/demo/external"
	"github.com/fencegate/fencegate/demo/staged"
	"github.com/fencegate/fencegate/internal/test/testenv/peers"
)

const description = "Each demo takes about 15 seconds. Exits 0 only if the fence kept the newer value and the unfenced " +
	"variant lost it;\naccess: only if each credential was accepted where, and as long as, it must be, and refused otherwise."

type commands struct {
	Etcd          etcdCmd          `cmd:"" help:"A worker is granted a lock by etcd, frozen past the end of its session, and thawed. Its token is the create revision of the key."`
	Zookeeper     zookeeperCmd     `cmd:"" help:"The same with ZooKeeper. The token is the czxid of the node."`
	Redis         redisCmd         `cmd:"" help:"The same with a key in Redis. The token is a counter."`
	Partition     partitionCmd     `cmd:"" help:"A worker is cut off by the network until its lease has expired, and its write arrives."`
	DelayedWrite  delayedWriteCmd  `cmd:"" help:"A write that was sent in time is held in the network until the lease has expired."`
	RedisFailover redisFailoverCmd `cmd:"" help:"Redis loses a lock in a failover, and grants it twice. Needs redis-server."`
	RedlockClock  redlockClockCmd  `cmd:"" help:"The clock of one of five Redis servers jumps, and Redlock grants a lock twice. Needs redis-server and libfaketime."`
	Access        accessCmd        `cmd:"" help:"Two gateways accept API keys, client certificates and tokens, for the names that each is for, until it ends."`
	Worker        workerCmd        `cmd:"" hidden:"" help:"One worker of the round."`
}

type (
	etcdCmd          struct{ serviceFlags }
	zookeeperCmd     struct{ serviceFlags }
	redisCmd         struct{ serviceFlags }
	partitionCmd     struct{ demoFlags }
	delayedWriteCmd  struct{ demoFlags }
	redisFailoverCmd struct{ demoFlags }
	accessCmd        struct{ demoFlags }
	redlockClockCmd  struct {
		demoFlags

		Libfaketime string `help:"The library that shifts a server's clock. Default: where the package libfaketime installs it." placeholder:"PATH"`
	}
)

// Run runs the demo.
func (c *partitionCmd) Run(ctx context.Context, out io.Writer) error {
	return c.run(ctx, out, staged.Partition)
}

// Run runs the demo.
func (c *delayedWriteCmd) Run(ctx context.Context, out io.Writer) error {
	return c.run(ctx, out, staged.DelayedWrite)
}

// Run runs the demo.
func (c *redisFailoverCmd) Run(ctx context.Context, out io.Writer) error {
	return c.run(ctx, out, staged.RedisFailover)
}

// Run runs the demo.
func (c *redlockClockCmd) Run(ctx context.Context, out io.Writer) error {
	return c.run(ctx, out, func(ctx context.Context, config demo.Config) error {
		return staged.RedlockClock{Config: config, Libfaketime: c.Libfaketime}.Run(ctx)
	})
}

// Run runs the demo.
func (c *accessCmd) Run(ctx context.Context, out io.Writer) error {
	return c.run(ctx, out, staged.Access)
}

// Run runs the demo.
func (c *etcdCmd) Run(ctx context.Context, out io.Writer) error {
	return c.serve(ctx, external.NameEtcd, out)
}

// Run runs the demo.
func (c *zookeeperCmd) Run(ctx context.Context, out io.Writer) error {
	return c.serve(ctx, external.NameZooKeeper, out)
}

// Run runs the demo.
func (c *redisCmd) Run(ctx context.Context, out io.Writer) error {
	return c.serve(ctx, external.NameRedis, out)
}

// packages are Debian's packages of the services.
var packages = map[string]string{
	external.NameEtcd:      "etcd-server",
	external.NameZooKeeper: "libzookeeper-java and default-jre-headless",
	external.NameRedis:     "redis-server",
}

type demoFlags struct {
	DatabaseURL string `help:"PostgreSQL to use. Without one, a private PostgreSQL is run in a temporary directory." env:"FENCEGATE_DATABASE_URL" placeholder:"URL"`
	Fencegate   string `help:"The program fencegate. Default: the one beside this program." type:"path" placeholder:"FILE"`
	Output      string `help:"text, or json: the events, one a line." enum:"text,json" default:"text"`
}

// run runs a demo, with a private PostgreSQL unless one is named.
func (f demoFlags) run(
	ctx context.Context, out io.Writer, demonstrate func(context.Context, demo.Config) error,
) (err error) {
	config := demo.Config{
		Program: f.Fencegate, DatabaseURL: f.DatabaseURL, DatabaseName: "PostgreSQL at --database-url",
		Suffix: "-" + uuid.NewString()[:8], JSON: f.Output == "json", Out: out,
	}
	if config.Program == "" {
		program, err := os.Executable()
		if err != nil {
			return err
		}
		config.Program = filepath.Join(filepath.Dir(program), "fencegate")
	}
	if config.DatabaseURL == "" {
		url, closeAll, err := demo.OpenPrivate(ctx)
		if err != nil {
			return err
		}
		config.DatabaseURL, config.DatabaseName, config.Suffix = url, demo.PrivateName, ""
		return errors.Join(demonstrate(ctx, config), closeAll())
	}
	return demonstrate(ctx, config)
}

// serviceFlags are those of demos with the lock of another service.
type serviceFlags struct {
	demoFlags

	Address string `help:"Host and port of a service that runs. Without one, the demo runs its own." placeholder:"HOST:PORT"`
}

// serve runs the demo of a service, with a server of its own unless one is named.
func (f serviceFlags) serve(ctx context.Context, service string, out io.Writer) (err error) {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	name := service + " at " + f.Address
	if f.Address == "" {
		server, startErr := external.Start(ctx, service)
		if errors.Is(startErr, peers.ErrAbsent) {
			return fmt.Errorf("%w; install it (Debian: %s), or name one that runs with --address HOST:PORT", startErr,
				packages[service])
		} else if startErr != nil {
			return startErr
		}
		defer func() { err = errors.Join(err, server.Stop()) }()
		f.Address = server.Address
		name = fmt.Sprintf("%s %s, private, in a temporary directory", service, server.Version)
	}
	return f.run(ctx, out, func(ctx context.Context, config demo.Config) error {
		return demo.Zombie{
			Config: config, Service: service, ServiceName: name,
			Workers: []string{program, "worker", "--service", service, "--address", f.Address},
		}.Run(ctx)
	})
}

type workerCmd struct {
	Service     string
	Address     string
	Name        string
	URL         string
	Lock        string
	TTL         time.Duration
	Work        time.Duration
	DatabaseURL string
}

// Run is one worker of the round.
func (c *workerCmd) Run(ctx context.Context, out io.Writer) error {
	service, err := external.Connect(c.Service, c.Address)
	if err != nil {
		return err
	}
	return demo.Worker{
		Name: c.Name, GatewayURL: c.URL, Lock: c.Lock, TTL: c.TTL, Work: c.Work, DatabaseURL: c.DatabaseURL,
		Service: service, ServiceName: c.Service,
	}.Run(ctx, out)
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal kills
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run is the whole program; it returns the exit code.
func run(ctx context.Context, args []string, out, failures io.Writer) int {
	helped := false
	parser, err := kong.New(&commands{}, kong.Name("fencegate-demo"), kong.Description(description),
		kong.Writers(out, failures), kong.BindTo(out, (*io.Writer)(nil)), kong.Exit(func(int) { helped = true }))
	if err == nil {
		var selected *kong.Context
		selected, err = parser.Parse(args)
		if err == nil && !helped {
			selected.BindTo(ctx, (*context.Context)(nil))
			err = selected.Run()
		}
	}
	if err == nil || helped {
		return 0
	}
	_, _ = fmt.Fprintf(failures, "fencegate-demo: %v\n", err)
	return 1
}
