package redis

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

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
