package deploy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/internal/testenv/await"
	"github.com/fencegate/fencegate/internal/testenv/gateway"
	"github.com/fencegate/fencegate/internal/testenv/network"
	"github.com/fencegate/fencegate/internal/testenv/postgres"
	"github.com/fencegate/fencegate/lockclient"
)

// TestGatewayRestartsBehindProxy checks that clients, which repeat nothing, see no error when gateways are restarted one
// after the other.
func TestGatewayRestartsBehindProxy(t *testing.T) {
	t.Parallel()
	database := postgres.Migrated(t)
	startAt := func(address string) *gateway.Process {
		return gateway.Serve(t, database, "--drain-delay", "1s", "--listen", address)
	}
	addresses := []string{network.FreeAddress(t), network.FreeAddress(t)}
	all := []*gateway.Process{startAt(addresses[0]), startAt(addresses[1])}
	url := proxied(t, all, "inter 2s fastinter 500ms", "inter 100ms fastinter 100ms", "timeout connect 2s",
		"timeout connect 2s\n    timeout check 10s")
	ctx, stop := context.WithCancel(t.Context())
	var working sync.WaitGroup
	defer working.Wait()
	defer stop()
	var calls atomic.Int64
	for n := range 16 {
		client := clientOf(t, url)
		working.Go(func() {
			if err := callOn(ctx, client.API(), fmt.Sprintf("drain/%d", n), &calls); ctx.Err() == nil {
				t.Error(err)
			}
		})
	}
	for i, gateway := range all {
		before := calls.Load()
		await.True(t, "clients get on", func() bool { return calls.Load() > before+200 })
		check(t, gateway.Stop())
		restarted := startAt(addresses[i])
		await.True(t, "the proxy sends it requests again", func() bool { return grants(t, restarted) > 0 })
	}
	stop()
	working.Wait()
	t.Logf("%d calls", calls.Load())
}

// grants returns how many leases a gateway has granted.
func grants(t *testing.T, gateway *gateway.Process) (count int) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, gateway.URL+"/metrics", http.NoBody)
	check(t, err)
	response, err := http.DefaultClient.Do(request)
	check(t, err)
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	check(t, err)
	_, rest, _ := strings.Cut(string(text), `fencegate_lease_operations_total{mode="exclusive",operation="acquire",result="ok"} `)
	_, _ = fmt.Sscan(rest, &count)
	return count
}

// callOn acquires, writes, reads and releases until ctx ends or a call fails.
func callOn(ctx context.Context, calls *lockclient.API, lock string, count *atomic.Int64) error {
	for n := 0; ; n++ {
		lease, err := calls.Acquire(ctx, lock, api.AcquireRequest{OwnerID: "worker", RequestID: new(strconv.Itoa(n))})
		if err != nil {
			return err
		}
		number := api.FencingToken{Token: lease.FencingToken, Sequence: new(int64(1))}
		_, putErr := calls.Put(ctx, lock, "k", lockclient.Write{Token: number, Value: []byte("v")})
		_, getErr := calls.Get(ctx, lock, "k")
		releaseErr := calls.Release(ctx, lock, api.ReleaseRequest{OwnerID: "worker", LeaseID: lease.LeaseID,
			FencingToken: lease.FencingToken})
		if err := errors.Join(putErr, getErr, releaseErr); err != nil {
			return err
		}
		count.Add(4)
	}
}
