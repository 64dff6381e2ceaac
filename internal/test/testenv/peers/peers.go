// Package peers runs services that fencegate is measured beside or runs with: each as a process of its own, with a
// directory of its own that goes when it ends, on free ports of the loopback interface. What is not on the machine is
// [ErrAbsent]; nothing is installed.
package peers

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencegate/fencegate/internal/test/testenv/network"
	"github.com/fencegate/fencegate/internal/test/testenv/process"
)

// ErrAbsent says that a peer's program is not on this machine; the message names it.
var ErrAbsent = errors.New("not on this machine")

const (
	startTimeout = 30 * time.Second
	// readyTimeout is what a peer has to answer one question whether it is ready.
	readyTimeout = time.Second
)

// Peer is a server in a process of its own.
type Peer struct {
	// Address is the first one, Version what the server calls its own.
	Address, Version string

	of        command
	path      string
	addresses []string
	cmd       *exec.Cmd
	output    process.Buffer
	dir       string
	ended     chan struct{}
}

// command says how a peer is run: in a directory, at addresses.
type command struct {
	program string
	// addresses is how many it listens on.
	addresses int
	// prepare puts what is needed into the directory of a server at the first address; nil: nothing.
	prepare func(dir, address string) error
	args    func(dir string, addresses []string) []string
	// ready returns the version once the peer answers at its first address.
	ready func(ctx context.Context, address string) (version string, err error)
}

// start runs the command and waits until it is ready. What it wrote is in the error if it does not get there.
func (c command) start(ctx context.Context) (*Peer, error) {
	path, err := exec.LookPath(c.program)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.program, ErrAbsent)
	}
	addresses := make([]string, c.addresses)
	for i := range addresses {
		if addresses[i], err = network.FindAddress(ctx); err != nil {
			return nil, err
		}
	}
	dir, err := os.MkdirTemp("", "fencegate-"+filepath.Base(c.program)+"-")
	if err != nil {
		return nil, err
	}
	p := &Peer{Address: addresses[0], of: c, path: path, addresses: addresses, dir: dir}
	if c.prepare != nil {
		err = c.prepare(dir, addresses[0])
	}
	if err == nil {
		err = p.Start(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, p.Stop())
	}
	return p, nil
}

// Start runs the server again after Kill, at the same addresses, and returns when it is ready.
func (p *Peer) Start(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	cmd, ended := exec.Command(p.path, p.of.args(p.dir, p.addresses)...), make(chan struct{})
	cmd.Dir, cmd.Env = p.dir, withoutSettings(os.Environ(), p.of.program)
	cmd.Stdout, cmd.Stderr = &p.output, &p.output
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", p.of.program, err)
	}
	go func() {
		_ = cmd.Wait()
		close(ended)
	}()
	p.cmd, p.ended = cmd, ended
	for {
		version, err := p.of.ready(ctx, p.Address)
		if err == nil {
			p.Version = version
			return nil
		}
		select {
		case <-ended:
			return fmt.Errorf("%s ended before it was ready: %s\n%s", p.of.program, cmd.ProcessState, &p.output)
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready: %w\n%s", p.of.program, err, &p.output)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// PID is the number of the process.
func (p *Peer) PID() int { return p.cmd.Process.Pid }

// Signal sends a signal to the process.
func (p *Peer) Signal(signal os.Signal) error { return p.cmd.Process.Signal(signal) }

// Kill ends the process as kill -9 does, and waits for its end.
func (p *Peer) Kill() {
	if p.cmd != nil {
		_ = p.cmd.Process.Kill()
		<-p.ended
	}
}

// Stop kills the process, waits for its end, and removes its directory.
func (p *Peer) Stop() error {
	p.Kill()
	return os.RemoveAll(p.dir)
}

// withoutSettings drops what would configure the program by the environment: ETCD_DATA_DIR and the like.
func withoutSettings(environment []string, program string) []string {
	return slices.DeleteFunc(environment, func(variable string) bool {
		return strings.HasPrefix(variable, strings.ToUpper(program)+"_")
	})
}

// listens is ready as soon as the peer accepts connections.
func listens(ctx context.Context, address string) (string, error) {
	connection, err := (&net.Dialer{Timeout: readyTimeout}).DialContext(ctx, "tcp", address)
	if err != nil {
		return "", err
	}
	return "", connection.Close()
}

// StartProgram runs a server of ours that listens on the address that its args, made from it, name.
func StartProgram(ctx context.Context, path string, args func(address string) []string) (*Peer, error) {
	return command{program: path, addresses: 1, ready: listens,
		args: func(_ string, addresses []string) []string { return args(addresses[0]) }}.start(ctx)
}

// StartPgBouncer runs one in transaction mode before the server of a database URL, for all databases of it, whose
// clients need no password. It returns ErrAbsent where there is none.
func StartPgBouncer(ctx context.Context, databaseURL string) (*Peer, error) {
	server, err := pgx.ParseConfig(databaseURL)
	if err != nil {
		return nil, fmt.Errorf("the database's URL: %w", err)
	}
	program := "pgbouncer"
	if path, err := exec.LookPath("/usr/sbin/pgbouncer"); err == nil { // Debian has it where only root's PATH looks
		program = path
	}
	return command{
		program: program, addresses: 1,
		prepare: func(dir, address string) error { return writePgBouncerConfig(dir, address, server) },
		args: func(dir string, _ []string) []string {
			args := []string{"--quiet", filepath.Join(dir, "pgbouncer.ini")}
			if os.Geteuid() == 0 {
				args = append(args, "--user", "postgres") // it refuses root
			}
			return args
		},
		ready: func(ctx context.Context, address string) (string, error) {
			version, err := exec.CommandContext(ctx, program, "--version").Output()
			name, _, _ := strings.Cut(string(version), "\n")
			_, listening := listens(ctx, address)
			return name, errors.Join(err, listening)
		},
	}.start(ctx)
}

// ThroughPgBouncer is the URL by which a database is reached through a PgBouncer.
func ThroughPgBouncer(pooler *Peer, databaseURL string) (string, error) {
	server, err := pgx.ParseConfig(databaseURL)
	if err != nil {
		return "", fmt.Errorf("the database's URL: %w", err)
	}
	return (&url.URL{
		Scheme: "postgres", User: url.User(server.User), Host: pooler.Address, Path: "/" + server.Database,
		RawQuery: "sslmode=disable",
	}).String(), nil
}

// writePgBouncerConfig writes what PgBouncer reads, also as another user.
func writePgBouncerConfig(dir, address string, server *pgx.ConnConfig) error {
	host, port, _ := net.SplitHostPort(address)
	password := ""
	if server.Password != "" {
		password = " password=" + server.Password
	}
	text := fmt.Sprintf(`[databases]
* = host=%s port=%d user=%s%s
[pgbouncer]
pool_mode = transaction
listen_addr = %s
listen_port = %s
unix_socket_dir =
auth_type = any
max_client_conn = 1000
ignore_startup_parameters = jit, statement_timeout, lock_timeout, default_transaction_isolation, client_min_messages
log_stats = 0
server_login_retry = 0.2
`, server.Host, server.Port, server.User, password, host, port)
	if err := os.Chmod(dir, 0o755); err != nil { //nolint:gosec // a private server has no password
		return err
	}
	return os.WriteFile(filepath.Join(dir, "pgbouncer.ini"), []byte(text), 0o644) //nolint:gosec // see above
}

// StartEtcd runs a single node of etcd, with more flags if there are any. Its durability is etcd's own: fsync before
// every answer. It returns ErrAbsent where there is none.
func StartEtcd(ctx context.Context, flags ...string) (*Peer, error) {
	return command{program: "etcd", addresses: 2, ready: etcdVersion, args: func(dir string, addresses []string) []string {
		client, peer := "http://"+addresses[0], "http://"+addresses[1]
		return append([]string{
			"--name", "bench", "--data-dir", dir + "/data", "--log-level", "error",
			"--listen-client-urls", client, "--advertise-client-urls", client,
			"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", "bench=" + peer,
		}, flags...)
	}}.start(ctx)
}

// etcdVersion answers when the node has a leader: itself.
func etcdVersion(ctx context.Context, address string) (string, error) {
	var health struct{ Health string }
	var version struct{ Etcdserver string }
	for path, answer := range map[string]any{"/health": &health, "/version": &version} {
		if err := get(ctx, "http://"+address+path, answer); err != nil {
			return "", err
		}
	}
	if health.Health != "true" {
		return "", fmt.Errorf("etcd is not ready: health %q", health.Health)
	}
	return version.Etcdserver, nil
}

func get(ctx context.Context, url string, answer any) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	return json.NewDecoder(response.Body).Decode(answer)
}

// StartRedis runs a Redis server with its own defaults (now and then a snapshot), and settings such as "--appendonly",
// "yes" over them. It returns ErrAbsent where there is none.
func StartRedis(ctx context.Context, settings ...string) (*Peer, error) {
	return command{program: "redis-server", addresses: 1, ready: answers("INFO server\r\n", "redis_version:"),
		args: func(dir string, addresses []string) []string {
			host, port, _ := net.SplitHostPort(addresses[0])
			return append([]string{"--port", port, "--bind", host, "--dir", dir, "--loglevel", "warning"}, settings...)
		}}.start(ctx)
}

// zooKeeperJar is where Debian's package puts it; its manifest names all else that it needs. Another ZooKeeper is named
// by the environment: ZOOKEEPER_CLASSPATH='/opt/zookeeper/lib/*'.
const zooKeeperJar = "/usr/share/java/zookeeper.jar"

// ZooKeeperSessionTimeout is what the server allows of silence, at most.
const ZooKeeperSessionTimeout = 40 * time.Second

// StartZooKeeper runs a single node of ZooKeeper with its own defaults, and settings such as "tickTime=500" over them.
// Its durability is ZooKeeper's own: fsync before every answer. It returns ErrAbsent where there is no java, or neither
// ZOOKEEPER_CLASSPATH nor Debian's package of ZooKeeper.
func StartZooKeeper(ctx context.Context, settings ...string) (*Peer, error) {
	classpath := os.Getenv("ZOOKEEPER_CLASSPATH")
	if _, err := os.Stat(zooKeeperJar); classpath == "" && err != nil {
		return nil, fmt.Errorf("zookeeper (%s): %w", zooKeeperJar, ErrAbsent)
	}
	return command{program: "java", addresses: 1, ready: answers("srvr", "Zookeeper version: "),
		args: func(dir string, _ []string) []string {
			return []string{
				"-Dzookeeper.admin.enableServer=false", "-Dzookeeper.4lw.commands.whitelist=srvr",
				"-Djava.net.preferIPv4Stack=true", "-cp", dir + ":" + cmp.Or(classpath, zooKeeperJar),
				"org.apache.zookeeper.server.ZooKeeperServerMain", filepath.Join(dir, "zoo.cfg"),
			}
		},
		prepare: func(dir, address string) error { return writeZooKeeperConfig(dir, address, settings) },
	}.start(ctx)
}

func writeZooKeeperConfig(dir, address string, settings []string) error {
	host, port, _ := net.SplitHostPort(address)
	config := fmt.Sprintf(
		"dataDir=%s/data\nclientPort=%s\nclientPortAddress=%s\nmaxClientCnxns=0\nmaxSessionTimeout=%d\n",
		dir, port, host, ZooKeeperSessionTimeout.Milliseconds()) + strings.Join(settings, "\n") + "\n"
	logging := "log4j.rootLogger=WARN, console\nlog4j.appender.console=org.apache.log4j.ConsoleAppender\n" +
		"log4j.appender.console.layout=org.apache.log4j.SimpleLayout\n"
	if err := os.WriteFile(filepath.Join(dir, "log4j.properties"), []byte(logging), 0o600); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "zoo.cfg"), []byte(config), 0o600)
}

// answers is ready when the peer answers a question with a line that begins with a label: its version is what follows,
// up to a hyphen.
func answers(question, label string) func(context.Context, string) (string, error) {
	return func(ctx context.Context, address string) (string, error) {
		connection, err := (&net.Dialer{Timeout: readyTimeout}).DialContext(ctx, "tcp", address)
		if err != nil {
			return "", err
		}
		defer connection.Close()
		if err := connection.SetDeadline(time.Now().Add(readyTimeout)); err != nil {
			return "", err
		}
		if _, err := connection.Write([]byte(question)); err != nil {
			return "", err
		}
		lines := bufio.NewScanner(connection)
		for lines.Scan() {
			if rest, found := strings.CutPrefix(lines.Text(), label); found {
				version, _, _ := strings.Cut(rest, "-")
				return version, nil
			}
		}
		return "", fmt.Errorf("no line with %q: %w", label, cmp.Or(lines.Err(), net.ErrClosed))
	}
}
