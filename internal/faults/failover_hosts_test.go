//go:build unix

package faults

import (
	"strings"
	"testing"
	"time"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/internal/testenv/await"
	"github.com/fencegate/fencegate/internal/testenv/postgres"
)

// TestFailoverToNextHost checks that a gateway leaves the first host of its URL, whether that is frozen, dead or behind
// a network that swallows packets, once the second is promoted: writes, waits, sweeps and notifications continue.
// Requests have all the time of the test, so that none is freed by its own timeout.
func TestFailoverToNextHost(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(*postgres.Cluster, *postgres.Network){
		"frozen":      func(primary *postgres.Cluster, _ *postgres.Network) { primary.Freeze() },
		"dead":        func(primary *postgres.Cluster, _ *postgres.Network) { primary.Kill() },
		"unreachable": func(_ *postgres.Cluster, network *postgres.Network) { network.Hold() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			primary := postgres.NewCluster(t)
			standby := primary.Standby()
			network := primary.Network()
			g := startGateway(t, postgres.FailoverURL(network, standby), "--request-timeout", "1h", "--statement-timeout", "1h")
			held := mustAcquire(t, g, "held", "holder", longTTLMS)
			leases := grantedAll(t, g)
			standby.CatchUp()

			lose(primary, network)
			swept := metric(t, g, "fencegate_last_sweep_timestamp_seconds")
			var inFlight []<-chan answer
			for _, lease := range leases {
				inFlight = append(inFlight, goPut(t, g, numbered(lease, 1)))
			}
			waiter := goAcquire(t, g, "held", "waiter")
			standby.Promote()
			writable := time.Now()
			mustPut(t, g, numbered(held, 1))
			wantWrites(t, connect(t, standby.URL()), "held", 1)
			t.Logf("the first write succeeded %s after the promotion", time.Since(writable).Round(time.Millisecond))
			for i, answers := range inFlight {
				await.Receive(t, "the answer to a write that the failover caught", answers)
				mustPut(t, g, numbered(leases[i], 1))
			}
			t.Logf("all writes succeeded %s after the promotion", time.Since(writable).Round(time.Millisecond))
			mustRelease(t, g, held)
			if lease := await.Receive(t, "the waiter's lease", waiter); lease.FencingToken <= held.FencingToken {
				t.Errorf("the waiter was granted %d after %d", lease.FencingToken, held.FencingToken)
			}
			await.True(t, "the gateway listens again", func() bool { return metric(t, g, "fencegate_database_listening") == "1" })
			await.True(t, "the gateway sweeps again", func() bool {
				return metric(t, g, "fencegate_last_sweep_timestamp_seconds") != swept
			})
		})
	}
}

// grantedAll takes each lock in turn, and keeps it.
func grantedAll(t *testing.T, g *gateway) (leases []api.Lease) {
	t.Helper()
	for _, name := range failoverNames {
		leases = append(leases, mustAcquire(t, g, name, "worker", longTTLMS))
	}
	return leases
}

// goAcquire waits for a lock, and sends the same again while the gateway is unavailable.
func goAcquire(t *testing.T, g *gateway, lock, owner string) <-chan api.Lease {
	t.Helper()
	ctx := patient(t)
	granted := make(chan api.Lease, 1)
	go func() {
		lease, err := tryAcquire(ctx, g, lock, api.AcquireRequest{OwnerID: owner, WaitMS: 60_000})
		if err != nil {
			t.Errorf("%s: %v", lock, err)
		}
		granted <- lease
	}()
	return granted
}

// metric returns the value of a series; "" where the gateway has none.
func metric(t *testing.T, g *gateway, series string) string {
	t.Helper()
	_, metrics := get(t, g, "/metrics")
	_, rest, _ := strings.Cut(metrics, "\n"+series+" ")
	value, _, _ := strings.Cut(rest, "\n")
	return value
}
