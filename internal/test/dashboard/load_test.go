//go:build unix

package dashboard

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/fencegate/fencegate/lockclient"
	"github.com/fencegate/fencegate/lockclient/api"
)

// load runs workers at two gateways until the test ends: honest ones, and others whose writes are rejected with each
// code.
func load(t *testing.T, first, second *gateway) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	for i := range 3 {
		running.Go(func() { work(ctx, first, fmt.Sprintf("worker-%d", 2*i)) })
		running.Go(func() { work(ctx, second, fmt.Sprintf("worker-%d", 2*i+1)) })
	}
	running.Go(func() { writeStale(ctx, first) })
	running.Go(func() { writeWrong(ctx, second) })
}

// pause keeps the workers from using the whole machine. No test waits for it.
func pause(ctx context.Context, atMost time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(rand.N(atMost)):
	}
}

// try writes, and ignores the result.
func (g *gateway) try(ctx context.Context, lease api.Lease, key string, write lockclient.Write) {
	write.Value, write.ContentType = []byte("value"), "text/plain"
	_, _ = g.Put(ctx, lease.Lock, key, write)
}

// work acquires one of a few locks, writes, and releases it, again and again.
func work(ctx context.Context, g *gateway, owner string) {
	for ctx.Err() == nil {
		lock := fmt.Sprintf("imports/orders/%02d", rand.IntN(8))
		lease, err := g.Acquire(ctx, lock, api.AcquireRequest{OwnerID: owner, TTLMS: new(int64(10_000)), WaitMS: 10_000})
		if err != nil {
			continue
		}
		for sequence := range int64(20) {
			g.try(ctx, lease, fmt.Sprintf("row/%d", rand.IntN(50)), lockclient.Write{Token: tokenOf(lease, sequence+1)})
			pause(ctx, 100*time.Millisecond)
		}
		_ = g.Release(ctx, lock, releaseOf(lease))
	}
}

// writeStale writes under broken leases, new and old.
func writeStale(ctx context.Context, g *gateway) {
	var stale []api.Lease
	for n := 0; ctx.Err() == nil; n++ {
		lock := fmt.Sprintf("imports/customers/%02d", n%12)
		_, _ = g.Break(ctx, lock, api.BreakRequest{Reason: "its worker was frozen"})
		lease, err := g.Acquire(ctx, lock, api.AcquireRequest{OwnerID: fmt.Sprintf("importer-%d", n%5), TTLMS: new(longTTL)})
		if err == nil && len(stale) < 40 {
			stale = append(stale, lease)
		}
		for range 3 {
			if len(stale) > 0 {
				zombie := stale[rand.IntN(len(stale))]
				token := api.FencingToken{Token: zombie.FencingToken}
				g.try(ctx, zombie, fmt.Sprintf("row/%d", rand.IntN(9)), lockclient.Write{Token: token})
			}
			pause(ctx, 150*time.Millisecond)
		}
	}
}

// writeWrong makes the other rejected writes: a wrong lease_id, version or token, no token, an expired lease.
func writeWrong(ctx context.Context, g *gateway) {
	for n := 0; ctx.Err() == nil; n++ {
		lock := fmt.Sprintf("reports/%02d", n%4)
		lease, err := g.Acquire(ctx, lock, api.AcquireRequest{OwnerID: "reporter-eu", TTLMS: new(int64(100))})
		if err != nil {
			pause(ctx, 200*time.Millisecond)
			continue
		}
		g.try(ctx, lease, "total", lockclient.Write{Token: tokenOf(lease, 1), LeaseID: uuid.NewString()})
		g.try(ctx, lease, "total", lockclient.Write{Token: tokenOf(lease, 2), IfMatch: new(int64(999_999))})
		g.try(ctx, lease, "total", lockclient.Write{Token: api.FencingToken{Token: lease.FencingToken + 1_000_000}})
		url := g.url + "/v1/resources/" + lock + "/records/total"
		if request, err := http.NewRequestWithContext(ctx, http.MethodPut, url, strings.NewReader("x")); err == nil {
			if answer, err := http.DefaultClient.Do(request); err == nil {
				_ = answer.Body.Close()
			}
		}
		pause(ctx, 600*time.Millisecond)
		g.try(ctx, lease, "total", lockclient.Write{Token: tokenOf(lease, 3)}) // mostly after its lease has expired
	}
}
