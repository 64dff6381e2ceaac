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

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/lockclient"
)

// load has workers acquire, write and release at two gateways until the test ends, and zombies write what is rejected, for each of the reasons that there are.
func load(t *testing.T, gateways ...*gateway) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	for i := range 6 {
		at := gateways[i%len(gateways)]
		running.Go(func() { work(ctx, at, fmt.Sprintf("worker-%d", i)) })
	}
	running.Go(func() { haunt(ctx, gateways[0]) })
	running.Go(func() { blunder(ctx, gateways[len(gateways)-1]) })
}

// pause is how the workers keep from taking the whole machine; nothing waits for it to pass.
func pause(ctx context.Context, atMost time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(rand.N(atMost)):
	}
}

// try is a write of which nobody waits for the outcome.
func (g *gateway) try(ctx context.Context, lease api.Lease, key string, write lockclient.Write) {
	write.Value, write.ContentType = []byte("value"), "text/plain"
	_, _ = g.Put(ctx, lease.Lock, key, write)
}

func tokenOf(lease api.Lease, sequence int64) api.FencingToken {
	return api.FencingToken{Token: lease.FencingToken, Sequence: &sequence}
}

// work is what an honest worker does: it takes one of a few locks, waiting for it if need be, writes, and gives it back.
func work(ctx context.Context, g *gateway, owner string) {
	for ctx.Err() == nil {
		lock := fmt.Sprintf("imports/orders/%02d", rand.IntN(8))
		lease, err := g.Acquire(ctx, lock, api.AcquireRequest{OwnerID: owner, TTLMS: ptr(int64(10_000)), WaitMS: 10_000})
		if err != nil {
			continue
		}
		for sequence := range int64(20) {
			g.try(ctx, lease, fmt.Sprintf("row/%d", rand.IntN(50)), lockclient.Write{Token: tokenOf(lease, sequence+1)})
			pause(ctx, 20*time.Millisecond)
		}
		_ = g.Release(ctx, lock, api.ReleaseRequest{OwnerID: owner, LeaseID: lease.LeaseID, FencingToken: lease.FencingToken})
	}
}

// haunt leaves leases behind that were broken, and writes under them, soon and late.
func haunt(ctx context.Context, g *gateway) {
	var stale []api.Lease
	for n := 0; ctx.Err() == nil; n++ {
		lock := fmt.Sprintf("imports/customers/%02d", n%12)
		_, _ = g.Break(ctx, lock, api.BreakRequest{Reason: "its worker was frozen"})
		lease, err := g.Acquire(ctx, lock, api.AcquireRequest{OwnerID: fmt.Sprintf("importer-%d", n%5), TTLMS: ptr(longTTL)})
		if err == nil && len(stale) < 40 {
			stale = append(stale, lease)
		}
		for range 3 {
			if len(stale) > 0 {
				zombie := stale[rand.IntN(len(stale))]
				g.try(ctx, zombie, fmt.Sprintf("row/%d", rand.IntN(9)), lockclient.Write{Token: api.FencingToken{Token: zombie.FencingToken}})
			}
			pause(ctx, 150*time.Millisecond)
		}
	}
}

// blunder makes the other mistakes that writers make.
func blunder(ctx context.Context, g *gateway) {
	for n := 0; ctx.Err() == nil; n++ {
		lock := fmt.Sprintf("reports/%02d", n%4)
		lease, err := g.Acquire(ctx, lock, api.AcquireRequest{OwnerID: "reporter-eu", TTLMS: ptr(int64(100))})
		if err != nil {
			pause(ctx, 200*time.Millisecond)
			continue
		}
		g.try(ctx, lease, "total", lockclient.Write{Token: tokenOf(lease, 1), LeaseID: uuid.NewString()})
		g.try(ctx, lease, "total", lockclient.Write{Token: tokenOf(lease, 2), IfMatch: ptr(int64(999_999))})
		g.try(ctx, lease, "total", lockclient.Write{Token: api.FencingToken{Token: lease.FencingToken + 1_000_000}})
		request, err := http.NewRequestWithContext(ctx, http.MethodPut, g.url+"/v1/resources/"+lock+"/records/total", strings.NewReader("x"))
		if err == nil {
			if answer, err := http.DefaultClient.Do(request); err == nil {
				_ = answer.Body.Close()
			}
		}
		pause(ctx, 600*time.Millisecond)
		g.try(ctx, lease, "total", lockclient.Write{Token: tokenOf(lease, 3)}) // its lease has run out by then, mostly
	}
}
