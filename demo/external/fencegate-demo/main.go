// Command fencegate-demo shows a zombie of an etcd, ZooKeeper or Redis lock, and fencegate rejecting its write.
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
	"github.com/fencegate/fencegate/internal/bench/peers"
)

const description = "A worker is granted a lock by another lock service, frozen past the end of its session, and " +
	"thawed: it writes with\nfencegate as the storage, and without.\n\n" +
	"Runs a gateway and, unless --address names one, the lock service, each in a directory of its own.\n" +
	"Takes about 15 seconds.\n" +
	"Exits 0 only if the fence kept the newer value and the unfenced variant lost it."

type commands struct {
	Etcd      etcdCmd      `cmd:"" help:"The lock is etcd's, the token its key's create revision."`
	Zookeeper zookeeperCmd `cmd:"" help:"The lock is ZooKeeper's, the token its node's czxid."`
	Redis     redisCmd     `cmd:"" help:"The lock is a key in Redis, the token a counter."`
	Worker    workerCmd    `cmd:"" hidden:"" help:"One worker of the round."`
}

type (
	etcdCmd      struct{ demoFlags }
	zookeeperCmd struct{ demoFlags }
	redisCmd     struct{ demoFlags }
)

// Run runs the demo.
func (c *etcdCmd) Run(ctx context.Context, out io.Writer) error {
	return c.run(ctx, external.NameEtcd, out)
}

// Run runs the demo.
func (c *zookeeperCmd) Run(ctx context.Context, out io.Writer) error {
	return c.run(ctx, external.NameZooKeeper, out)
}

// Run runs the demo.
func (c *redisCmd) Run(ctx context.Context, out io.Writer) error {
	return c.run(ctx, external.NameRedis, out)
}

// packages are Debian's packages of the services.
var packages = map[string]string{
	external.NameEtcd:      "etcd-server",
	external.NameZooKeeper: "libzookeeper-java and default-jre-headless",
	external.NameRedis:     "redis-server",
}

type demoFlags struct {
	Address     string `help:"Host and port of a service that runs. Without one, the demo runs its own." placeholder:"HOST:PORT"`
	DatabaseURL string `help:"PostgreSQL to use. Without one, a private PostgreSQL is run in a temporary directory." env:"FENCEGATE_DATABASE_URL" placeholder:"URL"`
	Fencegate   string `help:"The program fencegate. Default: the one beside this program." type:"path" placeholder:"FILE"`
	Output      string `help:"text, or json: the events, one a line." enum:"text,json" default:"text"`
}

func (f demoFlags) run(ctx context.Context, service string, out io.Writer) (err error) {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	zombie := demo.Zombie{Service: service, ServiceName: service + " at " + f.Address, Config: demo.Config{
		Program: f.Fencegate, DatabaseURL: f.DatabaseURL, DatabaseName: "PostgreSQL at --database-url",
		Suffix: "-" + uuid.NewString()[:8], JSON: f.Output == "json", Out: out,
	}}
	if zombie.Program == "" {
		zombie.Program = filepath.Join(filepath.Dir(program), "fencegate")
	}
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
		zombie.ServiceName = fmt.Sprintf("%s %s, private, in a temporary directory", service, server.Version)
	}
	if f.DatabaseURL == "" {
		url, closeAll, openErr := demo.OpenPrivate(ctx)
		if openErr != nil {
			return openErr
		}
		defer func() { err = errors.Join(err, closeAll()) }()
		zombie.DatabaseURL, zombie.DatabaseName = url, demo.PrivateName
	}
	zombie.Workers = []string{program, "worker", "--service", service, "--address", f.Address}
	return zombie.Run(ctx)
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
