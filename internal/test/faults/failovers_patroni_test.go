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
	"github.com/fencegate/fencegate/internal/test/testenv/await"
)

// patroniFault breaks a Patroni cluster under load, and heals it.
type patroniFault struct {
	name        string
	run         func(*testing.T, *measured, *patroniCluster, *patroniNode)
	leaderStays bool
}

var (
	switchover     = patroniFault{name: "planned: `patronictl switchover`", run: switchOver}
	etcdKilled     = patroniFault{name: "etcd away for 25 s", run: killEtcd, leaderStays: true}
	postgresKilled = patroniFault{name: "PostgreSQL of the leader killed", run: killPostgres}
	nodeKilled     = patroniFault{name: "leader killed, with Patroni", run: killNode}
	patroniFrozen  = patroniFault{name: "Patroni of the leader frozen and thawed", run: freezeLeader(false)}
	nodeFrozen     = patroniFault{name: "leader frozen and thawed, with Patroni", run: freezeLeader(true)}
	postgresFrozen = patroniFault{name: "PostgreSQL of the leader frozen and thawed", run: freezePostgres}
)

// failoversOfPatroni runs each fault on one cluster that is configured as shipped, and some on others.
func failoversOfPatroni(t *testing.T, add func(*testing.T, failover)) {
	t.Helper()
	version, etcd := patroniVersion(t), "ETCD3"
	if slices.Compare(version, []int{3, 0, 3}) < 0 { // a leader that was frozen could take its key back by version 3
		etcd = "ETCD"
	}
	for _, group := range []struct {
		setup    string
		since    int // a major version of Patroni
		settings patroniSettings
		faults   []patroniFault
	}{
		{"Patroni as shipped", 0, patroniSettings{nodes: 3, watchdog: true, etcd: etcd},
			[]patroniFault{switchover, postgresKilled, nodeKilled, patroniFrozen, nodeFrozen, postgresFrozen, etcdKilled}},
		{"the same with quorum", 4, patroniSettings{nodes: 3, watchdog: true, etcd: etcd, quorum: true},
			[]patroniFault{switchover, postgresKilled, nodeKilled, postgresFrozen}},
		{"Patroni without watchdogs", 0, patroniSettings{nodes: 3, etcd: etcd},
			[]patroniFault{patroniFrozen, postgresFrozen}},
	} {
		if version[0] < group.since {
			continue
		}
		t.Run(group.setup, func(t *testing.T) {
			c := startPatroni(t, group.settings)
			c.wantSound(t)
			for _, fault := range group.faults {
				add(t, failover{fault: fault.name, setup: group.setup, lossless: true, run: onPatroni(c, fault)})
			}
		})
	}
}

// patroniVersion returns the three parts of the version of the Patroni that runs.
func patroniVersion(t *testing.T) []int {
	t.Helper()
	output, err := exec.CommandContext(patient(t), patroniProgram(t), "--version").Output()
	check(t, err)
	version := make([]int, 3)
	_, err = fmt.Sscanf(strings.Fields(string(output))[1], "%d.%d.%d", &version[0], &version[1], &version[2])
	check(t, err)
	return version
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
		leader, others := c.leader(t)
		if !fault.leaderStays {
			m.notePhases(t, leader, others)
		}
		fault.run(t, m, c, leader)
		if leader.hasEnded() { // by the fault, or by the watchdog
			leader.start()
		}
		c.awaitHealthy(t)
		return m.finish(t, lossless, url)
	}
}

func switchOver(t *testing.T, _ *measured, c *patroniCluster, leader *patroniNode) {
	t.Helper()
	leader.post(t, "/switchover", fmt.Sprintf(`{"leader": %q}`, leader.name))
	c.awaitOther(t, leader)
}

// etcdAwayFor is longer than the leader's key lives without etcd.
const etcdAwayFor = 25 * time.Second

// killEtcd leaves Patroni without etcd for a while.
func killEtcd(t *testing.T, _ *measured, c *patroniCluster, _ *patroniNode) {
	t.Helper()
	c.etcd.Kill()
	time.Sleep(etcdAwayFor)
	check(t, c.etcd.Start(t.Context()))
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
	before, _ := m.progressed()
	for deadline := time.Now().Add(4 * frozenFor); time.Now().Before(deadline); time.Sleep(retryPause) {
		if now, _ := m.progressed(); now > before+100 {
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
