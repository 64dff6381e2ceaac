//go:build linux

package faults

import (
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fencegate/fencegate/internal/await"
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
	thawedStale    = patroniFault{"the same, thawed while etcd is slow", thawBeforeEtcd}
)

// failoversOfPatroni runs each fault on one cluster that is configured as shipped, and then those that lose writes under
// other settings, each on a cluster of its own.
func failoversOfPatroni(t *testing.T, add func(*testing.T, failover)) {
	t.Helper()
	fixed := hasFixedEtcd3(t)
	shipped := patroniSettings{nodes: 3, strict: true, watchdog: true, etcd: "ETCD3"}
	if !fixed {
		shipped.etcd = "ETCD"
	}
	t.Run("as shipped", func(t *testing.T) {
		c := startPatroni(t, shipped)
		for _, fault := range []patroniFault{postgresKilled, nodeKilled, patroniFrozen, nodeFrozen, thawedStale} {
			add(t, failover{fault: fault.name, setup: "Patroni as shipped", lossless: true, run: onPatroni(c, fault)})
		}
	})
	others := []patroniSettings{{nodes: 3, strict: true, etcd: shipped.etcd}}
	if !fixed {
		others = append(others, patroniSettings{nodes: 2, etcd: "ETCD3"}, patroniSettings{nodes: 2, strict: true, etcd: "ETCD3"})
	}
	for _, settings := range others {
		t.Run(settings.String(), func(t *testing.T) {
			c := startPatroni(t, settings)
			for _, fault := range []patroniFault{patroniFrozen, thawedStale} {
				add(t, failover{fault: fault.name, setup: settings.String(), run: onPatroni(c, fault)})
			}
		})
	}
}

func (s patroniSettings) String() string {
	api := map[string]string{"ETCD": "etcd v2", "ETCD3": "etcd3"}[s.etcd]
	return fmt.Sprintf("Patroni, %d nodes, no watchdog, strict %t, %s", s.nodes, s.strict, api)
}

// hasFixedEtcd3 reports whether a Patroni is at least 3.0.3, in which a leader does not take its key back.
func hasFixedEtcd3(t *testing.T) bool {
	t.Helper()
	output, err := exec.CommandContext(patient(t), patroniProgram(t), "--version").Output()
	check(t, err)
	var version [3]int
	_, err = fmt.Sscanf(strings.Fields(string(output))[1], "%d.%d.%d", &version[0], &version[1], &version[2])
	check(t, err)
	return slices.Compare(version[:], []int{3, 0, 3}) >= 0
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

// freezeLeader freezes Patroni of the leader, or all of the node, and thaws it when another has been leader for a while.
func freezeLeader(whole bool) func(*testing.T, *measured, *patroniCluster, *patroniNode) {
	return func(t *testing.T, _ *measured, c *patroniCluster, leader *patroniNode) {
		t.Helper()
		leader.signal(t, syscall.SIGSTOP, whole)
		c.awaitOther(t, leader)
		time.Sleep(frozenFor)
		leader.signal(t, syscall.SIGCONT, whole)
	}
}

// thawBeforeEtcd thaws the leader while etcd does not answer, so that Patroni there does not learn of its successor
// before it renews its key. The successor has acknowledged writes by then, if it may.
func thawBeforeEtcd(t *testing.T, m *measured, c *patroniCluster, leader *patroniNode) {
	t.Helper()
	leader.signal(t, syscall.SIGSTOP, true)
	c.awaitOther(t, leader)
	before, _ := m.journal.Progress()
	for deadline := time.Now().Add(4 * frozenFor); time.Now().Before(deadline); time.Sleep(retryPause) {
		if now, _ := m.journal.Progress(); now > before+100 {
			break
		}
	}
	check(t, c.etcd.Process.Signal(syscall.SIGSTOP))
	leader.signal(t, syscall.SIGCONT, true)
	time.Sleep(2 * time.Second) // less than retry_timeout
	check(t, c.etcd.Process.Signal(syscall.SIGCONT))
}

// awaitOther returns when another node is leader.
func (c *patroniCluster) awaitOther(t *testing.T, former *patroniNode) {
	t.Helper()
	await.True(t, "another node is leader", func() bool {
		now, _ := c.leader(t)
		return now != nil && now != former
	})
}
