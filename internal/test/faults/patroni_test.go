//go:build linux

package faults

import (
	"bufio"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencegate/fencegate/internal/embeddedpg"
	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/internal/test/testenv/network"
	"github.com/fencegate/fencegate/internal/test/testenv/peers"
	"github.com/fencegate/fencegate/internal/test/testenv/postgres"
	"github.com/fencegate/fencegate/internal/test/testenv/process"
)

// patroniEnv names another Patroni than the one on the PATH.
const patroniEnv = "FENCEGATE_PATRONI"

// patroniSettings are what a test changes of deploy/patroni/patroni.yml.
type patroniSettings struct {
	nodes int
	// quorum says that either standby confirms commits, which Patroni 4 can do.
	quorum bool
	// etcd is the API of etcd that Patroni uses: ETCD3, or ETCD for version 2.
	etcd string
	// watchdog says that the nodes have one. A test can't reset a machine: a node is killed instead.
	watchdog bool
}

// patroniCluster is etcd, and nodes that run PostgreSQL by Patroni.
type patroniCluster struct {
	etcd  *peers.Peer
	nodes []*patroniNode
}

// patroniNode is one node: Patroni, and what it started.
type patroniNode struct {
	t                        *testing.T // of the cluster
	name, dir, api, postgres string
	environment              []string
	command                  *exec.Cmd
}

// startPatroni starts etcd and nodes. It needs both programs.
func startPatroni(t *testing.T, settings patroniSettings) *patroniCluster {
	t.Helper()
	dir, err := os.MkdirTemp(process.TempParent(), "fencegate-patroni-") // not in t.TempDir, which other users can't enter
	check(t, err)
	t.Cleanup(func() { check(t, os.RemoveAll(dir)) })
	check(t, os.Chmod(dir, 0o755))
	etcd, err := peers.StartEtcd(t.Context(), "--enable-v2")
	if errors.Is(err, peers.ErrAbsent) {
		process.Missing(t, err.Error())
	}
	check(t, err)
	t.Cleanup(func() { check(t, etcd.Stop()) })
	c := &patroniCluster{etcd: etcd}
	for i := range settings.nodes {
		name := fmt.Sprintf("db-%d", i+1)
		node := &patroniNode{
			t: t, name: name, dir: filepath.Join(dir, name), api: network.FreeAddress(t), postgres: network.FreeAddress(t),
			environment: []string{"PATRONI_" + settings.etcd + "_HOSTS=" + etcd.Address},
		}
		node.configure(t, settings)
		node.start()
		c.nodes = append(c.nodes, node)
	}
	c.awaitHealthy(t)
	return c
}

// database makes a database and returns its URL.
func (c *patroniCluster) database(t *testing.T) string {
	t.Helper()
	name := "fencegate_" + strings.ToLower(rand.Text()[:8])
	execute(t, connect(t, c.url("postgres")), "create database "+name)
	return c.url(name)
}

func patroniProgram(t *testing.T) string {
	t.Helper()
	if program := os.Getenv(patroniEnv); program != "" {
		return program
	}
	return postgres.Require(t, "patroni")
}

// configure writes the node's configuration: the one that is shipped, and after it what a test changes.
func (n *patroniNode) configure(t *testing.T, settings patroniSettings) {
	t.Helper()
	shipped, err := os.ReadFile("../../../deploy/patroni/patroni.yml")
	check(t, err)
	changes := `
postgresql: {parameters: {unix_socket_directories: ''}}
watchdog: {mode: 'off'}
`
	if settings.quorum {
		changes += "bootstrap: {dcs: {synchronous_mode: quorum}}\n"
	}
	check(t, os.MkdirAll(filepath.Join(n.dir, "config"), 0o755))
	if settings.watchdog {
		changes = strings.Replace(changes, "mode: 'off'", "driver: testing, device: "+startWatchdog(t, n), 1)
	}
	for name, text := range map[string]string{"1-shipped.yml": string(shipped), "2-test.yml": changes} {
		check(t, os.WriteFile(filepath.Join(n.dir, "config", name), []byte(text), 0o644))
	}
}

// start runs Patroni as PostgreSQL's user, in a session of its own.
func (n *patroniNode) start() {
	t := n.t
	t.Helper()
	binaries, err := embeddedpg.FindBinaries()
	check(t, err)
	n.command = exec.Command(patroniProgram(t), filepath.Join(n.dir, "config"))
	n.command.Dir = "/"
	n.command.Env = append(n.environment[:len(n.environment):len(n.environment)], //nolint:gocritic // not to the nodes' own
		"PATH="+os.Getenv("PATH"), "LC_ALL=C.UTF-8", "HOME="+n.dir,
		"PATRONI_NAME="+n.name,
		"PATRONI_RESTAPI_LISTEN="+n.api, "PATRONI_RESTAPI_CONNECT_ADDRESS="+n.api,
		"PATRONI_POSTGRESQL_LISTEN="+n.postgres, "PATRONI_POSTGRESQL_CONNECT_ADDRESS="+n.postgres,
		"PATRONI_POSTGRESQL_DATA_DIR="+filepath.Join(n.dir, "data"), "PATRONI_POSTGRESQL_BIN_DIR="+binaries.Dir,
		"PATRONI_POSTGRESQL_PGPASS="+filepath.Join(n.dir, "pgpass"),
		"PATRONI_SUPERUSER_USERNAME=postgres", "PATRONI_SUPERUSER_PASSWORD=secret",
		"PATRONI_REPLICATION_USERNAME=replicator", "PATRONI_REPLICATION_PASSWORD=secret",
		"PATRONI_REWIND_USERNAME=rewind", "PATRONI_REWIND_PASSWORD=secret")
	log, err := os.OpenFile(filepath.Join(n.dir, "log"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	check(t, err)
	n.command.Stdout, n.command.Stderr = log, log
	n.command.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if os.Geteuid() == 0 {
		n.command.SysProcAttr.Credential = credential(t, "postgres")
		owner := n.command.SysProcAttr.Credential
		check(t, filepath.WalkDir(n.dir, func(path string, _ os.DirEntry, err error) error {
			return cmp.Or(err, os.Lchown(path, int(owner.Uid), int(owner.Gid)))
		}))
	}
	check(t, n.command.Start())
	t.Cleanup(func() {
		n.kill(t)
		if text, err := os.ReadFile(log.Name()); err == nil && t.Failed() {
			t.Logf("the log of Patroni on %s:\n%s", n.name, text[max(0, len(text)-8<<10):])
		}
		_ = log.Close()
	})
}

func credential(t *testing.T, name string) *syscall.Credential {
	t.Helper()
	account, err := user.Lookup(name)
	check(t, err)
	uid, err := strconv.ParseUint(account.Uid, 10, 32)
	check(t, err)
	gid, err := strconv.ParseUint(account.Gid, 10, 32)
	check(t, err)
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
}

// kill ends all processes of the node at once, and returns when Patroni has ended.
func (n *patroniNode) kill(t *testing.T) {
	n.signal(t, syscall.SIGSTOP, true)
	n.signal(t, syscall.SIGKILL, true)
	_ = n.command.Wait() // its error is the signal, or that it has been waited for
}

// signal sends a signal to Patroni, and to PostgreSQL with all its processes if the whole node is meant.
func (n *patroniNode) signal(t *testing.T, signal syscall.Signal, whole bool) {
	t.Helper()
	processes := []int{n.command.Process.Pid}
	if whole {
		processes = append(processes, n.postgresProcesses(t)...)
	}
	for _, pid := range processes {
		_ = syscall.Kill(pid, signal) // its error is that it has ended
	}
}

// postgresProcesses returns the processes of PostgreSQL, the postmaster first.
func (n *patroniNode) postgresProcesses(t *testing.T) []int {
	t.Helper()
	file, err := os.ReadFile(filepath.Join(n.dir, "data", "postmaster.pid"))
	if err != nil {
		return nil
	}
	line, _, _ := strings.Cut(string(file), "\n")
	postmaster, err := strconv.Atoi(line)
	check(t, err)
	family, err := process.Family(postmaster)
	check(t, err)
	return family
}

// url returns the URL of a database by all nodes, as a gateway is given it.
func (c *patroniCluster) url(database string) string {
	var hosts []string
	for _, n := range c.nodes {
		hosts = append(hosts, n.postgres)
	}
	return (&url.URL{
		Scheme: "postgres", User: url.UserPassword("postgres", "secret"), Host: strings.Join(hosts, ","), Path: "/" + database,
		RawQuery: "sslmode=disable&target_session_attrs=read-write",
	}).String()
}

// patroniMember is what Patroni's GET /cluster says of a node.
type patroniMember struct {
	Name, Role, State string
	Timeline          int
}

// leader returns the node that is leader by the word of any node that answers; nil if there is none.
func (c *patroniCluster) leader(t *testing.T) (leader *patroniNode, others []*patroniNode) {
	t.Helper()
	for _, member := range c.members(t) {
		switch n := c.node(member.Name); {
		case n == nil:
		case member.Role == "leader":
			leader = n
		default:
			others = append(others, n)
		}
	}
	return leader, others
}

// node returns the node of a name; nil if there is none.
func (c *patroniCluster) node(name string) *patroniNode {
	for _, n := range c.nodes {
		if n.name == name {
			return n
		}
	}
	return nil
}

func (c *patroniCluster) members(t *testing.T) []patroniMember {
	t.Helper()
	for _, n := range c.nodes {
		var cluster struct{ Members []patroniMember }
		if json.Unmarshal(n.get(t, "/cluster"), &cluster) == nil {
			return cluster.Members
		}
	}
	return nil
}

// answerTimeout is how long a node may take to answer: a frozen one never does.
const answerTimeout = 20 * retryPause

// get asks the node's Patroni; it returns nil without an answer.
func (n *patroniNode) get(t *testing.T, path string) []byte {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), answerTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+n.api+path, http.NoBody)
	check(t, err)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return nil
	}
	return body
}

// diverged is how long a node fails to start before an operator would copy the leader again. Patroni compares a node
// with its leader only once after a rewind: one that another failover overtakes meanwhile never starts by itself.
const diverged = 30 * time.Second

// awaitHealthy returns when each node runs, and one of them confirms the commits of the leader.
func (c *patroniCluster) awaitHealthy(t *testing.T) {
	t.Helper()
	failing := map[string]time.Time{} // since when, by name
	await.True(t, "all nodes of Patroni run, with a synchronous standby", func() bool {
		leaders, synchronous, running := 0, 0, 0
		for _, member := range c.members(t) {
			switch {
			case member.State == "running" || member.State == "streaming":
				running++
				delete(failing, member.Name)
			case failing[member.Name].IsZero():
				failing[member.Name] = time.Now()
			case member.State == "start failed" && time.Since(failing[member.Name]) > diverged:
				c.reinitialize(t, member.Name)
				delete(failing, member.Name)
			}
			switch member.Role {
			case "leader":
				leaders++
			case "sync_standby", "quorum_standby":
				synchronous++
			}
		}
		return running == len(c.nodes) && leaders == 1 && synchronous >= 1 && c.writable(t)
	})
}

// reinitialize copies the leader to a node again, as `patronictl reinit` does.
func (c *patroniCluster) reinitialize(t *testing.T, name string) {
	t.Helper()
	t.Logf("%s is copied from the leader again", name)
	c.node(name).post(t, "/reinitialize", `{"force": true}`)
}

// post has the node's Patroni do something.
func (n *patroniNode) post(t *testing.T, path, body string) {
	t.Helper()
	request, err := http.NewRequestWithContext(await.Context(t), http.MethodPost, "http://"+n.api+path,
		strings.NewReader(body))
	check(t, err)
	response, err := http.DefaultClient.Do(request)
	check(t, err)
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		t.Errorf("Patroni of %s answers %s with %s", n.name, path, response.Status)
	}
}

func (c *patroniCluster) writable(t *testing.T) bool {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), c.url("postgres"))
	if err != nil {
		return false
	}
	return conn.Close(t.Context()) == nil
}

// hasEnded reports whether Patroni of the node was killed.
func (n *patroniNode) hasEnded() bool { return !process.Running(n.command.Process.Pid) }

// startWatchdog makes the watchdog of a node: a named pipe, which Patroni's own test driver writes to as to
// /dev/watchdog. Where that resets the machine, this kills all processes of the node.
func startWatchdog(t *testing.T, node *patroniNode) (device string) {
	t.Helper()
	device = filepath.Join(node.dir, "watchdog")
	check(t, syscall.Mkfifo(device, 0o600))
	pipe, err := os.OpenFile(device, os.O_RDWR, 0)
	check(t, err)
	t.Cleanup(func() { check(t, pipe.Close()) })
	written := make(chan byte)
	go func() { // until the pipe is closed
		defer close(written)
		from := bufio.NewReader(pipe)
		for {
			sign, err := from.ReadByte()
			if err != nil {
				return
			}
			if sign == 'C' { // of "Ctimeout=15\n"
				line, _ := from.ReadString('\n')
				seconds, _ := strconv.Atoi(strings.TrimSpace(strings.TrimPrefix(line, "timeout=")))
				sign = byte(seconds)
			}
			written <- sign
		}
	}()
	go node.guard(t, written)
	return device
}

// guard kills the node if nothing is written within the timeout that was written. '1' keeps it alive, 'V' disarms.
func (n *patroniNode) guard(t *testing.T, written <-chan byte) {
	timeout := time.Minute
	timer := time.NewTimer(timeout)
	timer.Stop()
	for {
		select {
		case sign, open := <-written:
			switch {
			case !open:
				timer.Stop()
				return
			case sign == 'V':
				timer.Stop()
				continue
			case sign != '1':
				timeout = time.Duration(sign) * time.Second
			}
			timer.Reset(timeout)
		case <-timer.C:
			n.signal(t, syscall.SIGSTOP, true)
			n.signal(t, syscall.SIGKILL, true)
		}
	}
}
