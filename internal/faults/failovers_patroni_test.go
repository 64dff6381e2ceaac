//go:build linux

package faults

import (
	"fmt"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fencegate/fencegate/internal/checks"
	"github.com/fencegate/fencegate/internal/testenv/await"
)

// patroniFault breaks the leader of a Patroni cluster under load, and heals it.
type patroniFault struct {
	name string
	run  func(*testing.T, *measured, *patroniCluster, *patroniNode)
}

var (
	postgresKilled = patroniFault{"PostgreSQL of the leader killed", killPostgres}
	nodeKilled     = patroniFault{"leader killed, with Patroni", killNode}
	patroniFrozen  = patroniFault{"Patroni of the leader frozen and thawed", freezeLeader(false)}
	nodeFrozen     = patroniFault{"leader frozen and thawed, with Patroni", freezeLeader(true)}
	postgresFrozen = patroniFault{"PostgreSQL of the leader frozen and thawed", freezePostgres}
)

// failoversOfPatroni runs each fault on one cluster that is configured as shipped, and some on one without watchdogs.
func failoversOfPatroni(t *testing.T, add func(*testing.T, failover)) {
	t.Helper()
	etcd := etcdOf(t)
	for _, group := range []struct {
		setup    string
		settings patroniSettings
		faults   []patroniFault
	}{
		{"Patroni as shipped", patroniSettings{nodes: 3, strict: true, watchdog: true, etcd: etcd},
			[]patroniFault{postgresKilled, nodeKilled, patroniFrozen, nodeFrozen, postgresFrozen}},
		{"Patroni without watchdogs", patroniSettings{nodes: 3, strict: true, etcd: etcd},
			[]patroniFault{patroniFrozen, postgresFrozen}},
	} {
		t.Run(group.setup, func(t *testing.T) {
			c := startPatroni(t, group.settings)
			c.wantSound(t)
			for _, fault := range group.faults {
				add(t, failover{fault: fault.name, setup: group.setup, lossless: true, run: onPatroni(c, fault)})
			}
		})
	}
}

// etcdOf returns the API of etcd that suits the Patroni that is installed: before 3.0.3, a leader that was frozen could
// take its key back by version 3.
func etcdOf(t *testing.T) string {
	t.Helper()
	output, err := exec.CommandContext(patient(t), patroniProgram(t), "--version").Output()
	check(t, err)
	var version [3]int
	_, err = fmt.Sscanf(strings.Fields(string(output))[1], "%d.%d.%d", &version[0], &version[1], &version[2])
	check(t, err)
	if slices.Compare(version[:], []int{3, 0, 3}) < 0 {
		return "ETCD"
	}
	return "ETCD3"
}

// wantSound expects that `fencegate check --patroni-url` finds nothing but an old version.
func (c *patroniCluster) wantSound(t *testing.T) {
	t.Helper()
	found, err := checks.Patroni(patient(t), http.DefaultClient, "http://"+c.nodes[0].api)
	check(t, err)
	for _, f := range found {
		if f.State != checks.OK && f.Check != "patroni_version" {
			t.Errorf("the check found of Patroni: %+v", f)
		}
	}
}

func onPatroni(c *patroniCluster, fault patroniFault) func(*testing.T, bool) figures {
	return func(t *testing.T, lossless bool) figures {
		t.Helper()
		url := c.database(t)
		m := measure(t, startFleet(t, url, 2))
		leader, _ := c.leader(t)
		fault.run(t, m, c, leader)
		if leader.hasEnded() { // by the fault, or by the watchdog
			leader.start()
		}
		c.awaitHealthy(t)
		return m.finish(t, lossless, url)
	}
}

func killPostgres(t *testing.T, _ *measured, c *patroniCluster, leader *patroniNode) {
	t.Helper()
	processes := leader.postgresProcesses(t)
	for _, pid := range processes {
		check(t, syscall.Kill(pid, syscall.SIGKILL))
	}
	c.awaitOther(t, leader)
}

func killNode(t *testing.T, _ *measured, c *patroniCluster, leader *patroniNode) {
	t.Helper()
	leader.kill(t)
	c.awaitOther(t, leader)
}

// frozenFor is how long a frozen node stays so after another has become leader.
const frozenFor = 5 * time.Second

// freezeLeader freezes Patroni of the leader, or all of the node, and thaws it when another has been leader for a
// while.
func freezeLeader(whole bool) func(*testing.T, *measured, *patroniCluster, *patroniNode) {
	return func(t *testing.T, _ *measured, c *patroniCluster, leader *patroniNode) {
		t.Helper()
		leader.signal(t, syscall.SIGSTOP, whole)
		c.awaitOther(t, leader)
		time.Sleep(frozenFor)
		leader.signal(t, syscall.SIGCONT, whole)
	}
}

// freezePostgres freezes PostgreSQL alone, as a disk does that hangs. Patroni of the leader waits for it, in the middle
// of its loop: it has read by then that it is leader. When PostgreSQL is thawed, its successor has acknowledged writes.
func freezePostgres(t *testing.T, m *measured, c *patroniCluster, leader *patroniNode) {
	t.Helper()
	processes := leader.postgresProcesses(t)
	for _, pid := range processes {
		check(t, syscall.Kill(pid, syscall.SIGSTOP))
	}
	c.awaitOther(t, leader)
	before, _ := m.journal.Progress()
	for deadline := time.Now().Add(4 * frozenFor); time.Now().Before(deadline); time.Sleep(retryPause) {
		if now, _ := m.journal.Progress(); now > before+100 {
			break
		}
	}
	for _, pid := range processes {
		_ = syscall.Kill(pid, syscall.SIGCONT) // its error is that the watchdog has killed it
	}
}

// awaitOther returns when another node is leader.
func (c *patroniCluster) awaitOther(t *testing.T, former *patroniNode) {
	t.Helper()
	await.True(t, "another node is leader", func() bool {
		now, _ := c.leader(t)
		return now != nil && now != former
	})
}
