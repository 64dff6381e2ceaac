// Package redis runs Redis servers and Sentinels as operating-system processes of their own, for the demo and for
// tests, which kill them and shift their clocks.
package redis

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fencegate/fencegate/internal/devcert"
	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/internal/test/testenv/network"
	"github.com/fencegate/fencegate/internal/test/testenv/process"
)

// Server is a Redis of one test's own, without snapshots and append-only file. It keeps its address over restarts.
type Server struct {
	*Process

	t testing.TB
}

// Start runs a server with lines of redis.conf such as "maxmemory 1mb" until the test ends. Without the program the test
// is skipped, or fails where CI=true.
func Start(t testing.TB, settings ...string) *Server {
	t.Helper()
	return start(t, Config{Settings: settings})
}

// StartWithClock runs a server whose clock can be shifted. Without libfaketime the test is skipped, or fails where CI=true.
func StartWithClock(t testing.TB, settings ...string) *Server {
	t.Helper()
	return start(t, Config{Settings: settings, Libfaketime: process.Libfaketime(t)})
}

// StartSentinel runs a Sentinel that watches a master under a name.
func StartSentinel(t testing.TB, name string, master *Server) *Server {
	t.Helper()
	return start(t, Config{Sentinel: true, Settings: []string{
		fmt.Sprintf("sentinel monitor %s %s %s 1", name, master.Host, master.Port),
	}})
}

// StartReplica runs a server that replicates from a master, and waits until it has the master's data.
func StartReplica(t testing.TB, master *Server) *Server {
	t.Helper()
	s := Start(t, "replicaof "+master.Host+" "+master.Port)
	await.True(t, "the replica has the data of its master", func() bool {
		return strings.Contains(s.Do("INFO", "replication"), "master_link_status:up")
	})
	return s
}

// StartN runs several servers.
func StartN(t testing.TB, count int, settings ...string) []*Server {
	t.Helper()
	servers := make([]*Server, count)
	for i := range servers {
		servers[i] = Start(t, settings...)
	}
	return servers
}

// Vote lets a server that was started just now vote on leases at once, as if it had run for the longest TTL.
func (s *Server) Vote() {
	_, rest, _ := strings.Cut(s.Do("INFO", "server"), "run_id:")
	runID, _, _ := strings.Cut(rest, "\r\n")
	s.Do("SET", "fencegate//server", runID+" 1")
}

func start(t testing.TB, config Config) *Server {
	t.Helper()
	config.Address = network.FreeAddress(t)
	server, err := Run(await.Context(t), config)
	if errors.Is(err, ErrNoProgram) {
		process.Missing(t, err.Error())
	}
	check(t, err)
	t.Cleanup(func() {
		server.Close()
		if t.Failed() && server.Output() != "" {
			t.Logf("redis-server %s wrote:\n%s", server.Address(), server.Output())
		}
	})
	return &Server{server, t}
}

// URL returns the URL of the server.
func (s *Server) URL() string { return "redis://" + s.Address() }

// UserURL returns the URL with a user and a password.
func (s *Server) UserURL(user, password string) string {
	return fmt.Sprintf("redis://%s:%s@%s", user, password, s.Address())
}

// Freeze stops the process of the server: it keeps its connections, and answers nothing.
func (s *Server) Freeze() {
	s.t.Helper()
	check(s.t, s.Signal(syscall.SIGSTOP))
}

// Thaw lets the server continue.
func (s *Server) Thaw() {
	s.t.Helper()
	check(s.t, s.Signal(syscall.SIGCONT))
}

// ShiftClock lets the clock of a server of StartWithClock differ by shift from the system's.
func (s *Server) ShiftClock(shift time.Duration) {
	s.t.Helper()
	check(s.t, s.Process.ShiftClock(shift))
}

// RestartEmpty kills the server and starts it again without its data.
func (s *Server) RestartEmpty() {
	s.t.Helper()
	check(s.t, s.Process.RestartEmpty(await.Context(s.t)))
}

// Do sends one command, such as "SET", "k", "v", and returns what the server answers, without the type. It fails the
// test if that is an error.
func (s *Server) Do(args ...string) string {
	s.t.Helper()
	answer, err := call(await.Context(s.t), s.Address(), args...)
	if err != nil {
		s.t.Fatalf("redis %v: %v", args, err)
	}
	return answer
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// slots is the number of slots of every Cluster.
const slots = 16384

// StartCluster runs the masters of a Cluster. Each has an equal part of the slots.
func StartCluster(t testing.TB, masters int) []*Server {
	t.Helper()
	nodes := make([]*Server, masters)
	for i := range nodes {
		_, bus, _ := net.SplitHostPort(network.FreeAddress(t))
		nodes[i] = Start(t, "cluster-enabled yes", "cluster-port "+bus)
		nodes[i].Do("CLUSTER", "SET-CONFIG-EPOCH", fmt.Sprint(i+1))
		nodes[i].Do("CLUSTER", "ADDSLOTSRANGE", fmt.Sprint(i*slots/masters), fmt.Sprint((i+1)*slots/masters-1))
		nodes[0].Do("CLUSTER", "MEET", nodes[i].Host, nodes[i].Port, bus)
	}
	for _, node := range nodes {
		await.True(t, "the node knows the cluster", func() bool {
			info := node.Do("CLUSTER", "INFO")
			return strings.Contains(info, "cluster_state:ok") &&
				strings.Contains(info, fmt.Sprintf("cluster_slots_assigned:%d\r\n", slots)) &&
				strings.Contains(info, fmt.Sprintf("cluster_size:%d\r\n", masters))
		})
	}
	return nodes
}

// StartTLS runs a server with a certificate of its own. It returns the URL, and the roots by which a client trusts it.
func StartTLS(t testing.TB) (url string, roots *x509.CertPool) {
	t.Helper()
	dir, address := t.TempDir(), network.FreeAddress(t)
	certFile, keyFile := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	host, port, err := net.SplitHostPort(address)
	check(t, err)
	authority, err := devcert.NewAuthority("test")
	check(t, err)
	pair, err := authority.Issue(devcert.Request{Name: "redis", Hosts: []string{host}})
	check(t, err)
	check(t, os.WriteFile(certFile, pair.Certificate, 0o600))
	check(t, os.WriteFile(keyFile, pair.Key, 0o600))
	Start(t, "tls-port "+port, "tls-cert-file "+certFile, "tls-key-file "+keyFile, "tls-ca-cert-file "+certFile,
		"tls-auth-clients no")
	return "rediss://" + address, authority.Pool()
}

// ErrNoProgram says that Redis is not installed.
var ErrNoProgram = errors.New("redis-server was not found (Debian: redis-server; macOS: redis)")

const (
	// startTimeout is long enough for a machine that is busy. A server that fails ends before.
	startTimeout = 2 * time.Minute
	// commandTimeout bounds one command.
	commandTimeout = 5 * time.Second
	// startsMax is how often a start is tried: another program may take the port that was found free.
	startsMax = 3
)

// Config says how a server is run.
type Config struct {
	// Address is where it listens. Default: a free port of the loopback interface.
	Address string
	// Settings are lines of its redis.conf, such as "maxmemory 1mb". That nothing is written to disk is set anyway.
	Settings []string
	// Sentinel runs a Sentinel instead.
	Sentinel bool
	// Libfaketime is the library that ShiftClock needs.
	Libfaketime string
}

// Process is a server. It keeps its address when it is started again.
type Process struct {
	Host, Port string

	config Config
	args   []string
	dir    string
	output process.Buffer
	cmd    *exec.Cmd
	ended  chan struct{}
}

// Run runs a server and waits until it answers. It returns ErrNoProgram if Redis is not installed.
func Run(ctx context.Context, config Config) (*Process, error) {
	program, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoProgram, err)
	}
	for try := 1; ; try++ {
		p, err := prepare(ctx, program, config)
		if err == nil {
			err = p.start(ctx)
		}
		if err == nil {
			return p, nil
		}
		if p != nil {
			p.Close()
		}
		if try == startsMax || ctx.Err() != nil {
			return nil, err
		}
	}
}

// prepare makes the directory of a server and its configuration.
func prepare(ctx context.Context, program string, config Config) (*Process, error) {
	dir, err := os.MkdirTemp("", "fencegate-redis-")
	if err != nil {
		return nil, err
	}
	p := &Process{config: config, dir: dir}
	if p.Host, p.Port, err = hostPort(ctx, config.Address); err != nil {
		return p, err
	}
	file := filepath.Join(dir, "redis.conf")
	p.args = []string{program, file}
	settings := []string{"bind " + p.Host, "port " + p.Port, `dir "` + dir + `"`, "loglevel warning"}
	if config.Sentinel {
		p.args = append(p.args, "--sentinel")
	} else {
		settings = append(settings, `save ""`, "appendonly no", "repl-diskless-sync-delay 0")
	}
	text := strings.Join(append(settings, config.Settings...), "\n") + "\n"
	return p, errors.Join(os.WriteFile(file, []byte(text), 0o600), p.ShiftClock(0))
}

// start returns when the server answers.
func (p *Process) start(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	cmd, ended := exec.Command(p.args[0], p.args[1:]...), make(chan struct{})
	cmd.Dir, cmd.Env = p.dir, p.environment()
	cmd.Stdout, cmd.Stderr = &p.output, &p.output
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start redis-server: %w", err)
	}
	go func() {
		_ = cmd.Wait()
		close(ended)
	}()
	p.cmd, p.ended = cmd, ended
	for {
		_, err := p.Do(ctx, "PING")
		if err == nil || strings.HasPrefix(err.Error(), "NOAUTH") {
			return nil
		}
		select {
		case <-ended:
			return fmt.Errorf("redis-server ended: %s\n%s", cmd.ProcessState, &p.output)
		case <-ctx.Done():
			return fmt.Errorf("redis-server does not answer: %w\n%s", err, &p.output)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// environment is that of the process.
func (p *Process) environment() []string {
	if p.config.Libfaketime == "" {
		return nil // this process's
	}
	// With the C library's malloc: that of Redis reads the clock before libfaketime is ready.
	return append(os.Environ(), "LD_PRELOAD="+p.config.Libfaketime+":libc.so.6", "FAKETIME_TIMESTAMP_FILE="+p.clock(),
		"FAKETIME_NO_CACHE=1", "FAKETIME_DONT_FAKE_MONOTONIC=1")
}

// clock is the file with the shift of the server's clock.
func (p *Process) clock() string { return filepath.Join(p.dir, "clock") }

// ShiftClock lets the clock of the server differ by shift from the system's. It has no effect without Libfaketime.
func (p *Process) ShiftClock(shift time.Duration) error {
	// The server reads either the old file or the new one.
	err := os.WriteFile(p.clock()+".new", fmt.Appendf(nil, "%+.3f\n", shift.Seconds()), 0o600)
	if err == nil {
		err = os.Rename(p.clock()+".new", p.clock())
	}
	return err
}

// Address returns the host and the port.
func (p *Process) Address() string { return net.JoinHostPort(p.Host, p.Port) }

// Signal sends a signal.
func (p *Process) Signal(signal os.Signal) error { return p.cmd.Process.Signal(signal) }

// Kill ends the server as a crash does (SIGKILL), and waits for its end.
func (p *Process) Kill() {
	if p.cmd != nil {
		_ = p.cmd.Process.Kill()
		<-p.ended
	}
}

// RestartEmpty kills the server, starts it again without its data, and waits until it answers.
func (p *Process) RestartEmpty(ctx context.Context) error {
	p.Kill()
	_ = os.Remove(filepath.Join(p.dir, "dump.rdb")) // what a replica got of its master
	return p.start(ctx)
}

// Close kills the server and removes its directory.
func (p *Process) Close() {
	p.Kill()
	_ = os.RemoveAll(p.dir)
}

// Output is what the server has written.
func (p *Process) Output() string { return p.output.String() }

// Do is call of this server, which may take 5 s.
func (p *Process) Do(ctx context.Context, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	return call(ctx, p.Address(), args...)
}

// call sends a command to the server at an address, on a connection of its own, and returns the answer, which must not
// be an array; "" is also nothing.
func call(ctx context.Context, address string, args ...string) (string, error) {
	client := redis.NewClient(&redis.Options{
		Addr: address, Protocol: 2, DisableIdentity: true, MaxRetries: -1, ReadTimeout: -1, ContextTimeoutEnabled: true,
	})
	defer func() { _ = client.Close() }()
	command := make([]any, len(args))
	for i, arg := range args {
		command[i] = arg
	}
	answer, err := client.Do(ctx, command...).Result()
	if errors.Is(err, redis.Nil) {
		return "", nil
	}
	return fmt.Sprint(answer), err
}

// hostPort splits an address. Without one, it finds a free port.
func hostPort(ctx context.Context, address string) (host, port string, err error) {
	if address == "" {
		listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
		if err != nil {
			return "", "", err
		}
		address = listener.Addr().String()
		if err := listener.Close(); err != nil {
			return "", "", err
		}
	}
	return net.SplitHostPort(address)
}
