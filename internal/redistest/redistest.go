// Package redistest runs Redis servers for tests, which may break them.
package redistest

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/fencegate/fencegate/internal/await"
	"github.com/fencegate/fencegate/internal/freeport"
	"github.com/fencegate/fencegate/internal/lockedbuffer"
	"github.com/fencegate/fencegate/internal/pgtest"
	"github.com/fencegate/fencegate/internal/redisprocess"
)

// program is Debian's name of the server.
const program = "redis-server"

// Server is a Redis of one test's own, without snapshots and append-only file. It keeps its address over restarts.
type Server struct {
	t          testing.TB
	path, dir  string
	address    string
	host, port string
	args       []string
	clock      string // the file with the shift of its clock; "": the system's clock
	cmd        *exec.Cmd
	ended      chan struct{}
	output     lockedbuffer.Buffer
}

// Start runs a server with settings such as "--maxmemory", "1mb" until the test ends. Without the program the test is
// skipped, or fails where CI=true.
func Start(t testing.TB, settings ...string) *Server {
	t.Helper()
	s := prepare(t)
	s.start(settings)
	return s
}

func (s *Server) start(settings []string) {
	s.t.Helper()
	s.args = append([]string{
		"--bind", s.host, "--port", s.port, "--dir", s.dir, "--save", "", "--appendonly", "no", "--loglevel", "warning",
		"--repl-diskless-sync-delay", "0",
	}, settings...)
	s.run()
}

// StartSentinel runs a Sentinel that watches a master under a name.
func StartSentinel(t testing.TB, name string, master *Server) *Server {
	t.Helper()
	s := prepare(t)
	config := filepath.Join(s.dir, "sentinel.conf") // Sentinel writes to it
	text := fmt.Sprintf("port %s\nbind %s\ndir %s\nsentinel monitor %s %s %s 1\n",
		s.port, s.host, s.dir, name, master.host, master.port)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s.args = []string{config, "--sentinel"}
	s.run()
	return s
}

// StartReplica runs a server that replicates from a master, and waits until it has the master's data.
func StartReplica(t testing.TB, master *Server) *Server {
	t.Helper()
	s := Start(t, "--replicaof", master.host+" "+master.port)
	await.True(t, "the replica has the data of its master", func() bool {
		return strings.Contains(s.Do("INFO", "replication"), "master_link_status:up")
	})
	return s
}

// prepare returns a server that does not run yet.
func prepare(t testing.TB) *Server {
	t.Helper()
	path, err := exec.LookPath(program)
	if err != nil {
		pgtest.Missing(t, err.Error())
	}
	dir, err := os.MkdirTemp("", "fencegate-redis-")
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{t: t, path: path, dir: dir, address: freeport.Address(t)}
	s.host, s.port, _ = net.SplitHostPort(s.address)
	t.Cleanup(s.discard)
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

// URL returns the URL of the server.
func (s *Server) URL() string { return "redis://" + s.address }

// UserURL returns the URL with a user and a password.
func (s *Server) UserURL(user, password string) string {
	return fmt.Sprintf("redis://%s:%s@%s", user, password, s.address)
}

// Address returns the host and the port.
func (s *Server) Address() string { return s.address }

// Dir returns the directory of the server.
func (s *Server) Dir() string { return s.dir }

// Stop kills the server, and returns when it is dead.
func (s *Server) Stop() {
	s.t.Helper()
	_ = s.cmd.Process.Kill()
	await.Receive(s.t, "the end of redis-server", s.ended)
}

// Freeze stops the process of the server: it keeps its connections, and answers nothing.
func (s *Server) Freeze() { s.signal(syscall.SIGSTOP) }

// Thaw lets the server go on.
func (s *Server) Thaw() { s.signal(syscall.SIGCONT) }

// RestartEmpty kills the server and starts it again without its data.
func (s *Server) RestartEmpty() {
	s.t.Helper()
	s.Stop()
	_ = os.Remove(filepath.Join(s.dir, "dump.rdb"))
	s.run()
}

// Do sends one command, such as "SET", "k", "v", and returns what the server answers, without the type. It fails the
// test if that is an error.
func (s *Server) Do(args ...string) string {
	s.t.Helper()
	answer, err := redisprocess.Call(await.Context(s.t), s.address, args...)
	if err != nil {
		s.t.Fatalf("redis %v: %v", args, err)
	}
	return answer
}

func (s *Server) signal(signal syscall.Signal) {
	s.t.Helper()
	if err := s.cmd.Process.Signal(signal); err != nil {
		s.t.Fatal(err)
	}
}

func (s *Server) run() {
	s.t.Helper()
	s.cmd = exec.Command(s.path, s.args...)
	s.cmd.Dir, s.cmd.Env = s.dir, s.environment()
	s.cmd.Stdout, s.cmd.Stderr = &s.output, &s.output
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	cmd, ended := s.cmd, make(chan struct{})
	s.ended = ended
	go func() {
		_ = cmd.Wait()
		close(ended)
	}()
	ctx := await.Context(s.t)
	await.True(s.t, "redis-server answers", func() bool {
		select {
		case <-ended:
			s.t.Fatalf("redis-server ended: %s\n%s", cmd.ProcessState, &s.output)
		default:
		}
		answer, err := redisprocess.Call(ctx, s.address, "PING")
		return err == nil && answer == "PONG" || err != nil && strings.HasPrefix(err.Error(), "NOAUTH")
	})
}

func (s *Server) discard() {
	if s.cmd != nil && s.cmd.Process != nil {
		_ = s.cmd.Process.Kill()
		<-s.ended
	}
	_ = os.RemoveAll(s.dir)
	if s.t.Failed() && s.output.String() != "" {
		s.t.Logf("redis-server %s wrote:\n%s", s.address, &s.output)
	}
}
