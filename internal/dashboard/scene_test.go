//go:build unix

package dashboard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/lockclient"
)

// longTTL outlasts every test.
const longTTL = int64(5*time.Hour+30*time.Minute) / int64(time.Millisecond)

// longWait is the longest that there is.
const longWait = int64(10 * time.Minute / time.Millisecond)

// hold acquires a lock for longer than the test lasts.
func (g *gateway) hold(t *testing.T, lock, owner string) api.Lease {
	t.Helper()
	lease, err := g.Acquire(t.Context(), lock, api.AcquireRequest{OwnerID: owner, TTLMS: ptr(longTTL)})
	check(t, err)
	return lease
}

// put writes a record under a lease.
func (g *gateway) put(t *testing.T, lease api.Lease, key, value string, sequence int64) {
	t.Helper()
	_, err := g.Put(t.Context(), lease.Lock, key, lockclient.Write{
		Token: api.FencingToken{Token: lease.FencingToken, Sequence: &sequence}, Value: []byte(value), ContentType: "text/plain",
	})
	check(t, err)
}

// shutOut has a write under a lease that is not the newest any more, and sees it rejected.
func (g *gateway) shutOut(t *testing.T, lease api.Lease, key string) {
	t.Helper()
	_, err := g.Put(t.Context(), lease.Lock, key, lockclient.Write{
		Token: api.FencingToken{Token: lease.FencingToken}, Value: []byte("late"), ContentType: "text/plain",
	})
	if !errors.Is(err, lockclient.ErrTokenStale) {
		t.Fatalf("the zombie's write: %v, want token_stale", err)
	}
}

func releaseOf(lease api.Lease) api.ReleaseRequest {
	return api.ReleaseRequest{OwnerID: lease.OwnerID, LeaseID: lease.LeaseID, FencingToken: lease.FencingToken}
}

// zombie lets an owner lose a lock to another, and then write as if nothing had happened.
func (g *gateway) zombie(t *testing.T, lock, key, owner, next string) (stale, current api.Lease) {
	t.Helper()
	stale = g.hold(t, lock, owner)
	_, err := g.Break(t.Context(), lock, api.BreakRequest{Reason: owner + " does not answer"})
	check(t, err)
	current = g.hold(t, lock, next)
	g.shutOut(t, stale, key)
	return stale, current
}

// queue has an owner wait for a lock until the test ends, and returns when it stands in the line.
func (g *gateway) queue(t *testing.T, lock, owner string) {
	t.Helper()
	g.wait(t, lock, owner)
	eventually(t, owner+" stands in the line", func() bool {
		state, err := g.Lock(t.Context(), lock)
		check(t, err)
		return slices.ContainsFunc(state.Queue, func(waiter api.Waiter) bool { return waiter.OwnerID == owner })
	})
}

// wait has an owner wait for a lock until the test ends.
func (g *gateway) wait(t *testing.T, lock, owner string) {
	ctx, cancel := context.WithCancel(context.Background())
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		_, _ = g.Acquire(ctx, lock, api.AcquireRequest{OwnerID: owner, TTLMS: ptr(longTTL), WaitMS: longWait})
	}()
	t.Cleanup(func() {
		cancel()
		<-gone
	})
}

// queueMany has n owners wait for a lock until the test ends, and returns when all stand in the line.
func (g *gateway) queueMany(t *testing.T, lock string, n int) {
	t.Helper()
	for i := range n {
		g.wait(t, lock, fmt.Sprintf("waiter-%03d", i))
	}
	eventually(t, "all stand in the line", func() bool {
		state, err := g.Lock(t.Context(), lock)
		check(t, err)
		return state.QueueLength >= int64(n)
	})
}

// metadataOf is a JSON object with a text in it.
func metadataOf(text string) json.RawMessage {
	written, err := json.Marshal(map[string]string{"note": text})
	if err != nil {
		panic(err) // a text can be written
	}
	return written
}
