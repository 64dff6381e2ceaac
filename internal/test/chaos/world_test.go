//go:build unix

package chaos

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"testing"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/jackc/pgx/v5"

	"github.com/fencegate/fencegate/internal/test/journal"
	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/internal/test/testenv/gateway"
	"github.com/fencegate/fencegate/internal/test/testenv/network"
	"github.com/fencegate/fencegate/internal/test/testenv/postgres"
	"github.com/fencegate/fencegate/lockclient"
	"github.com/fencegate/fencegate/lockclient/api"
)

// connectionsMax is that of a database. A gateway takes up to ten.
const connectionsMax = 60

type startGateway func(t testing.TB, program string, args ...string) *gateway.Gateway

// world is gateways before a primary and its standby. The nemesis changes it from the test's goroutine alone.
type world struct {
	t            *testing.T
	program      string
	startGateway startGateway
	// withMovingClock is program with another wall clock; "" if there is none.
	withMovingClock string

	// hosts[0] runs the primary, and hosts[1] the standby, until they change places.
	hosts            []*network.Relay
	primary, standby *postgres.Cluster
	members          []*member
	// journal is that of the load and of the paths beside it.
	journal *journal.Journal
	// paths are the kinds of their writes.
	paths []string
}

// member is a gateway of the world, and its network.
type member struct {
	gateway   *gateway.Gateway
	args      []string
	databases []*toxiproxy.Proxy // of the hosts
	clients   *toxiproxy.Proxy
	api       *lockclient.API // through it
}

func newWorld(t *testing.T, program string, start startGateway, gateways int) *world {
	t.Helper()
	w := &world{t: t, program: program, startGateway: start, primary: postgres.NewCluster(t, settings()...)}
	w.waitForStandbys(w.primary, "*")
	w.standby = w.primary.Standby(settings()...)
	w.hosts = []*network.Relay{newHost(t, w.primary), newHost(t, w.standby)}
	for i := range gateways {
		w.members = append(w.members, w.newMember(i))
	}
	conn := connect(t, w.primary)
	execute(t, conn, createRows)
	execute(t, conn, protectRows)
	check(t, conn.Close(t.Context()))
	return w
}

// settings of all clusters. What a reload changes must not be on the command line of PostgreSQL.
func settings() []postgres.Option {
	return []postgres.Option{
		postgres.Setting("max_connections", fmt.Sprint(connectionsMax)), postgres.Setting("synchronous_commit", ""),
	}
}

func (w *world) newMember(index int) *member {
	w.t.Helper()
	m := &member{}
	var addresses []string
	for i, host := range w.hosts {
		m.databases = append(m.databases, newProxy(w.t, fmt.Sprintf("gateway %d to database %d", index, i), host.Address()))
		addresses = append(addresses, m.databases[i].Listen)
	}
	url := "postgres://fencegate@" + strings.Join(addresses, ",") +
		"/fencegate?sslmode=disable&target_session_attrs=read-write&connect_timeout=1"
	listen := network.FreeAddress(w.t)
	m.args = []string{
		"--database-url", url, "--listen", listen, "--database-connections-max", "6", "--request-timeout", "3s",
		"--statement-timeout", "3s", "--shutdown-timeout", "15s",
	}
	m.gateway = w.startGateway(w.t, w.program, m.args...)
	m.clients = newProxy(w.t, fmt.Sprintf("clients to gateway %d", index), listen)
	m.api, _ = gateway.Client(w.t, "http://"+m.clients.Listen)
	return m
}

// member returns the gateway that a step targets.
func (w *world) member(target int) *member { return w.members[target%len(w.members)] }

// restart starts a gateway again that has ended.
func (w *world) restart(m *member, program string) {
	w.t.Helper()
	m.gateway.Transport.CloseIdleConnections()
	m.gateway = w.startGateway(w.t, program, m.args...)
}

// awaitServed returns when each gateway has been granted a lock by the database that is the primary now.
func (w *world) awaitServed() {
	w.t.Helper()
	ctx := await.Context(w.t)
	for _, m := range w.members {
		err := await.Nil(func() error {
			id := rand.Text()
			_, err := m.gateway.Acquire(ctx, "served/"+id, api.AcquireRequest{OwnerID: id})
			return err
		})
		if err != nil {
			log := m.gateway.Log()
			w.t.Fatalf("%s does not grant again: %v; its log:\n%s", m.gateway.URL, err, log[max(0, len(log)-8<<10):])
		}
	}
}

// waitForStandbys sets the standbys that commits wait for: "*" for one, "" for none.
func (w *world) waitForStandbys(c *postgres.Cluster, names string) {
	w.t.Helper()
	w.reload(c, "synchronous_standby_names", names)
}

// reload changes a setting of a running cluster.
func (w *world) reload(c *postgres.Cluster, setting, value string) {
	w.t.Helper()
	conn := connect(w.t, c)
	defer func() { _ = conn.Close(context.Background()) }()
	execute(w.t, conn, "alter system set "+setting+" = '"+value+"'")
	execute(w.t, conn, "select pg_reload_conf()")
}

// connect connects as an administrator, past the network that gateways use, and whatever timeouts were set by a reload.
func connect(t *testing.T, c *postgres.Cluster) *pgx.Conn {
	t.Helper()
	config, err := pgx.ParseConfig(c.URL())
	check(t, err)
	config.RuntimeParams["statement_timeout"], config.RuntimeParams["lock_timeout"] = "0", "0"
	conn, err := pgx.ConnectConfig(await.Context(t), config)
	check(t, err)
	return conn
}

func execute(t *testing.T, conn *pgx.Conn, sql string, args ...any) {
	t.Helper()
	_, err := conn.Exec(await.Context(t), sql, args...)
	check(t, err)
}

// progress returns when so many more writes were acknowledged, or a client got an answer that no fault explains.
// Nothing may stay broken after a fault is healed.
func (w *world) progress(acks int) {
	w.t.Helper()
	before, _ := w.journal.Progress(ofTheLoad...)
	await.True(w.t, "clients get on", func() bool {
		now, sound := w.journal.Progress(ofTheLoad...)
		return now >= before+acks || !sound
	})
}

// ofTheLoad are the kinds of the load's own writes.
var ofTheLoad = []string{journal.ByPut, journal.ByTransaction}

// hold lets a fault last.
func hold(s step) { time.Sleep(s.hold) }

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
