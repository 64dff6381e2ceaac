//go:build unix

package chaos

import (
	"cmp"
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/internal/test/testenv/network"
	"github.com/fencegate/fencegate/internal/test/testenv/postgres"
	"github.com/fencegate/fencegate/internal/test/testenv/process"
)

// fault is something that the nemesis can do to the world.
type fault struct {
	name string
	// apply applies it, and returns what heals it; nil: it is over.
	apply func(*world, step) (heal func())
	// loses says that it loses commits where replication is asynchronous, and that its apply tells the journal.
	loses bool
	// alone says that nothing may be beside it, such as where its apply waits for all gateways.
	alone bool
}

// forgotten is found out only by clients that remember tokens.
const forgotten = "tokens-forgotten"

// The families of faults. Their order is part of what a seed means.
var (
	networks = []fault{
		{name: "client-cut", apply: toxic(toClients, `"type":"reset_peer","attributes":{"timeout":0}`)},
		{name: "client-slow", apply: toxic(toClients, `"type":"latency","attributes":{"latency":60,"jitter":50}`)},
		{name: "client-late", apply: toxic(toClients, `"type":"latency","attributes":{"latency":700,"jitter":300}`)},
		{name: "client-silent", apply: toxic(toClients, `"type":"timeout","attributes":{"timeout":0}`)},
		{name: "client-short", apply: toxic(toClients, `"type":"limit_data","attributes":{"bytes":700}`)},
		{name: "database-cut", apply: toxic(toDatabase, `"type":"reset_peer","attributes":{"timeout":0}`)},
		{name: "database-slow", apply: toxic(toDatabase, `"type":"latency","attributes":{"latency":20,"jitter":15}`)},
		{name: "database-silent", apply: toxic(toDatabase, `"type":"timeout","attributes":{"timeout":0}`)},
		{name: "database-short", apply: toxic(toDatabase, `"type":"limit_data","attributes":{"bytes":9000}`)},
	}
	processes = []fault{
		{name: "gateway-killed", apply: gatewayKilled},
		{name: "gateway-frozen", apply: gatewayFrozen},
		{name: "gateway-ended", apply: gatewayEnded},
		{name: "gateway-clock-moved", apply: clockMoved, alone: true},
		{name: "primary-killed", apply: primaryKilled},
		{name: "primary-restarted", apply: primaryRestarted},
		{name: "primary-frozen", apply: primaryFrozen},
		{name: "standby-killed", apply: standbyKilled},
		{name: "standby-frozen", apply: standbyFrozen},
	}
	backends = []fault{
		{name: "statements-canceled", apply: signalBackends("pg_cancel_backend")},
		{name: "sessions-terminated", apply: signalBackends("pg_terminate_backend")},
		{name: "connections-exhausted", apply: connectionsExhausted},
		{name: "settings-reloaded", apply: settingsReloaded},
	}
	failover = []fault{
		{name: "standby-promoted", apply: standbyPromoted},
		{name: "standby-promoted-behind", apply: promotedBehind("")},
		{name: "standby-promoted-after-cancel", apply: promotedBehind("pg_cancel_backend")},
		{name: "standby-promoted-after-terminate", apply: promotedBehind("pg_terminate_backend")},
		{name: "standby-promoted-after-reload", apply: promotedUnsynchronized},
		{name: "frozen-primary-replaced", apply: frozenPrimaryReplaced},
	}
	losing = []fault{
		{name: "commits-lost", apply: commitsLost, loses: true, alone: true},
		{name: "old-primary-returned", apply: oldPrimaryReturned, loses: true, alone: true},
		{name: "backup-restored", apply: backupRestored, loses: true, alone: true},
		{name: forgotten, apply: tokensForgotten, loses: true, alone: true},
	}

	// local faults lose nothing, whether or not commits wait for a standby.
	local    = slices.Concat(networks, processes, backends)
	lossless = slices.Concat(local, failover)
)

func faultNamed(name string) fault {
	all := slices.Concat(lossless, losing)
	return all[slices.IndexFunc(all, func(f fault) bool { return f.name == name })]
}

// gatewayKilled kills a gateway as kill -9 does.
func gatewayKilled(w *world, s step) func() {
	m := w.member(s.target)
	m.gateway.Kill()
	return func() { w.restart(m, w.program) }
}

func gatewayFrozen(w *world, s step) func() {
	m := w.member(s.target)
	m.gateway.Freeze(w.t)
	return func() { m.gateway.Thaw(w.t) }
}

// gatewayEnded sends SIGTERM. A gateway ends well if its database answers.
func gatewayEnded(w *world, s step) func() {
	m := w.member(s.target)
	if err := m.gateway.Stop(); err != nil && s.beside == "" {
		w.t.Errorf("a gateway that was to end did not end well: %v\n%s", err, m.gateway.Log())
	}
	return func() { w.restart(m, w.program) }
}

// clockMoved restarts a gateway with a wall clock that jumps by ten minutes, back and forth, every two seconds. A Go
// program asks no library for the time, so the one thing that can be replaced is its time package.
func clockMoved(w *world, s step) func() {
	m := w.member(s.target)
	m.gateway.Kill()
	w.restart(m, cmp.Or(w.withMovingClock, w.program))
	return func() {
		m.gateway.Kill()
		w.restart(m, w.program)
	}
}

func withMovingClock(t testing.TB) (path string) {
	t.Helper()
	const now = "sec, nsec, mono := runtimeNow()\n"
	const moved = now + "\tsec += [3]int64{0, 600, -600}[mono/2_000_000_000%3]\n"
	root, err := exec.CommandContext(t.Context(), "go", "env", "GOROOT").Output()
	check(t, err)
	return process.BuildChanged(t, filepath.Join(strings.TrimSpace(string(root)), "src", "time", "time.go"), map[string]string{now: moved})
}

func primaryKilled(w *world, _ step) func() {
	w.primary.Kill()
	return w.primary.Restart
}

func primaryRestarted(w *world, _ step) func() {
	w.primary.Stop()
	return w.primary.Restart
}

func primaryFrozen(w *world, _ step) func() { return w.primary.Freeze() }

func standbyKilled(w *world, _ step) func() {
	w.standby.Kill()
	return w.standby.Restart
}

func standbyFrozen(w *world, _ step) func() { return w.standby.Freeze() }

// signalBackends calls a function for the sessions of gateways, again and again.
func signalBackends(function string) func(*world, step) func() {
	return func(w *world, s step) func() {
		conn := connect(w.t, w.primary)
		defer func() { _ = conn.Close(context.Background()) }()
		for end := time.Now().Add(s.hold); time.Now().Before(end); time.Sleep(s.hold / 10) {
			execute(w.t, conn, "select "+function+`(pid) from pg_stat_activity
				where application_name = 'fencegate' and state = 'active' and random() < 0.5`)
		}
		return nil
	}
}

// connectionsExhausted takes all connections that are free, and those that gateways close.
func connectionsExhausted(w *world, s step) func() {
	var taken []*pgx.Conn
	for end := time.Now().Add(s.hold); time.Now().Before(end); {
		conn, err := pgx.Connect(await.Context(w.t), w.primary.URL())
		if err != nil {
			time.Sleep(s.hold / 10)
			continue
		}
		taken = append(taken, conn)
	}
	return func() {
		for _, conn := range taken {
			_ = conn.Close(context.Background()) // its error is that it was closed by the server
		}
	}
}

// reloads are settings that may change under running gateways without a loss.
var reloads = []struct{ setting, value, usual string }{
	{"synchronous_commit", "off", "on"},
	{"synchronous_commit", "remote_apply", "on"},
	{"statement_timeout", "30ms", "0"},
	{"lock_timeout", "10ms", "0"},
	{"idle_in_transaction_session_timeout", "20ms", "0"},
	{"client_min_messages", "error", "notice"},
	{"default_transaction_isolation", "serializable", "read committed"},
	{"jit", "off", "on"},
	{"wal_sender_timeout", "500ms", "60s"},
}

// settingsReloaded changes a setting, and terminates some sessions, since new ones start with it.
func settingsReloaded(w *world, s step) func() {
	change := reloads[s.target%len(reloads)]
	w.reload(w.primary, change.setting, change.value)
	signalBackends("pg_terminate_backend")(w, step{hold: s.hold / 2})
	return func() { w.reload(w.primary, change.setting, change.usual) }
}

// newHost returns a machine for a database, with an address that stays the same whatever cluster runs there.
func newHost(t testing.TB, c *postgres.Cluster) *network.Relay {
	t.Helper()
	host, err := network.NewRelay(t.Context(), "unix", c.Socket())
	check(t, err)
	t.Cleanup(host.Close)
	return host
}

func newProxy(t testing.TB, name, upstream string) *toxiproxy.Proxy {
	t.Helper()
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(prometheus.NewRegistry()), zerolog.Nop())
	proxy := toxiproxy.NewProxy(server, name, network.FreeAddress(t), upstream)
	check(t, proxy.Start())
	t.Cleanup(proxy.Stop)
	return proxy
}

// The sides of a gateway's network.
func toClients(m *member) []*toxiproxy.Proxy  { return []*toxiproxy.Proxy{m.clients} }
func toDatabase(m *member) []*toxiproxy.Proxy { return m.databases }

// toxic disturbs the connections of one gateway, in one direction: the other one, if a fault beside it has taken that.
// toxiproxy loses count of two toxics in a direction, of which the first ends connections, and panics at the next one.
func toxic(side func(*member) []*toxiproxy.Proxy, attributes string) func(*world, step) func() {
	return func(w *world, s step) func() {
		w.t.Helper()
		proxies := side(w.member(s.target))
		streams := []string{"upstream", "downstream"}
		for _, proxy := range proxies {
			stream := streams[s.target/16%2]
			if proxy.Toxics.GetToxic(stream) != nil {
				stream = streams[1-s.target/16%2]
			}
			_, err := proxy.Toxics.AddToxicJson(strings.NewReader(fmt.Sprintf(`{"name":%[1]q,"stream":%[1]q,%s}`, stream, attributes)))
			check(w.t, err)
		}
		return func() {
			for _, proxy := range proxies {
				proxy.Toxics.ResetToxics(w.t.Context())
			}
		}
	}
}
