//go:build linux

package faults

import (
	"syscall"
	"testing"

	"github.com/fencegate/fencegate/internal/await"
)

var shippedPatroni = patroniSettings{nodes: 3, strict: true, watchdog: true}

var failoversWithoutPatroni []failover

var failoversOfPatroni = []failover{
	{fault: "PostgreSQL of the leader killed", setup: "Patroni as shipped", lossless: true,
		run: onPatroni(shippedPatroni, true, crashPostgres)},
	{fault: "Patroni of the leader frozen and thawed", setup: "Patroni as shipped", lossless: true,
		run: onPatroni(shippedPatroni, true, freezeLeader(false))},
	{fault: "Patroni of the leader frozen and thawed", setup: "not strict, no watchdog",
		run: onPatroni(patroniSettings{nodes: 2}, false, freezeLeader(false))},
}

func onPatroni(settings patroniSettings, lossless bool,
	fault func(*testing.T, *measured, *patroniCluster, *patroniNode)) func(*testing.T) figures {
	return func(t *testing.T) figures {
		t.Helper()
		c := startPatroni(t, settings)
		m := measure(t, startFleet(t, c.url("fencegate"), 2))
		leader, _ := c.leader(t)
		fault(t, m, c, leader)
		m.proceed(t, 200)
		c.awaitHealthy(t)
		return m.finish(t, lossless, c.url("fencegate"))
	}
}

func crashPostgres(_ *testing.T, _ *measured, _ *patroniCluster, leader *patroniNode) {
	_ = leader
}

// freezeLeader freezes Patroni of the leader, or all of the node, and thaws it when another has been leader for a while.
func freezeLeader(whole bool) func(*testing.T, *measured, *patroniCluster, *patroniNode) {
	return func(t *testing.T, m *measured, c *patroniCluster, leader *patroniNode) {
		t.Helper()
		leader.signal(t, syscall.SIGSTOP, whole)
		await.True(t, "another node is leader", func() bool {
			now, _ := c.leader(t)
			return now != nil && now != leader
		})
		m.proceed(t, 500)
		leader.signal(t, syscall.SIGCONT, whole)
	}
}
