// Package redistest runs Redis servers for tests, which may break them.
package redistest

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fencegate/fencegate/internal/await"
	"github.com/fencegate/fencegate/internal/freeport"
	"github.com/fencegate/fencegate/internal/pgtest"
	"github.com/fencegate/fencegate/internal/redisprocess"
)

// faketime is where Debian and others install libfaketime.
const faketime = "/usr/lib/*/faketime/libfaketimeMT.so.1"

// Server is a Redis of one test's own, without snapshots and append-only file. It keeps its address over restarts.
type Server struct {
	*redisprocess.Process

	t testing.TB
}

// Start runs a server with lines of redis.conf such as "maxmemory 1mb" until the test ends. Without the program the test
// is skipped, or fails where CI=true.
func Start(t testing.TB, settings ...string) *Server {
	t.Helper()
	return start(t, redisprocess.Config{Settings: settings})
}

// StartWithClock runs a server whose clock can be shifted. Without libfaketime the test is skipped, or fails where CI=true.
func StartWithClock(t testing.TB, settings ...string) *Server {
	t.Helper()
	libraries, _ := filepath.Glob(faketime)
	if len(libraries) == 0 {
		pgtest.Missing(t, "libfaketime was not found: "+faketime)
	}
	return start(t, redisprocess.Config{Settings: settings, Libfaketime: libraries[0]})
}

// StartSentinel runs a Sentinel that watches a master under a name.
func StartSentinel(t testing.TB, name string, master *Server) *Server {
	t.Helper()
	return start(t, redisprocess.Config{Sentinel: true, Settings: []string{
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

func start(t testing.TB, config redisprocess.Config) *Server {
	t.Helper()
	config.Address = freeport.Address(t)
	process, err := redisprocess.Start(await.Context(t), config)
	if errors.Is(err, redisprocess.ErrNoProgram) {
		pgtest.Missing(t, err.Error())
	}
	check(t, err)
	t.Cleanup(func() {
		process.Close()
		if t.Failed() && process.Output() != "" {
			t.Logf("redis-server %s wrote:\n%s", process.Address(), process.Output())
		}
	})
	return &Server{process, t}
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
	answer, err := redisprocess.Call(await.Context(s.t), s.Address(), args...)
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
