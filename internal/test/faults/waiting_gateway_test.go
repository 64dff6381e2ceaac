//go:build unix

package faults

import (
	"context"
	"crypto/rand"
	"fmt"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/lockclient/api"
	"github.com/fencegate/fencegate/store"
)

// waitingClients wait for one lock, and give it back as soon as they have it.
type waitingClients struct {
	db      *pgxpool.Pool
	lock    string
	waiting sync.WaitGroup

	mu     sync.Mutex
	served map[string]int64 // the tokens, by owner
	failed map[string]error
}

// wait has so many clients wait at a gateway, one behind the other, and returns once they are in the queue.
func (w *waitingClients) wait(ctx context.Context, t *testing.T, g *gateway, name string, count int) {
	t.Helper()
	for i := range count {
		owner := fmt.Sprintf("%s %d", name, i)
		w.waiting.Go(func() {
			lease, err := g.Acquire(ctx, w.lock, api.AcquireRequest{OwnerID: owner, WaitMS: store.WaitMax.Milliseconds(),
				RequestID: new(rand.Text())})
			if err == nil {
				err = g.Release(ctx, w.lock, api.ReleaseRequest{OwnerID: owner, LeaseID: lease.LeaseID,
					FencingToken: lease.FencingToken})
			}
			w.mu.Lock()
			defer w.mu.Unlock()
			if err != nil {
				w.failed[owner] = err
				return
			}
			w.served[owner] = lease.FencingToken
		})
		await.True(t, owner+" waits", func() bool {
			return query[int](t, w.db, "select count(*) from fence.waiters where owner_id = $1", owner) == 1
		})
	}
}

func (w *waitingClients) countServed() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.served)
}

// wantServed expects that the clients of this name, and no more, were served, one after the other.
func (w *waitingClients) wantServed(t *testing.T, name string, count int) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	last := int64(0)
	for i := range count {
		owner := fmt.Sprintf("%s %d", name, i)
		token, served := w.served[owner]
		if !served || token <= last {
			t.Errorf("%s has token %d, after %d (%v)", owner, token, last, w.failed[owner])
		}
		last = token
	}
}

// wantApart expects that no two leases ran at the same time, and that none runs.
func (w *waitingClients) wantApart(t *testing.T) {
	t.Helper()
	if n := query[int](t, w.db, `
		select count(*) from fence.leases a, fence.leases b
		where a.lock = b.lock and a.fencing_token < b.fencing_token
			and b.granted_at < coalesce(a.ended_at, a.expires_at)`); n != 0 {
		t.Errorf("%d leases ran beside each other", n)
	}
	await.True(t, "grants to clients that are gone are released", func() bool {
		return query[int](t, w.db, "select count(*) from fence.leases where ended_at is null") == 0
	})
}

func newWaitingClients(db *pgxpool.Pool) *waitingClients {
	return &waitingClients{db: db, lock: "job", served: map[string]int64{}, failed: map[string]error{}}
}

// A gateway is frozen while clients wait at it, until it is considered dead. The waiters behind them are served. When
// it continues, its clients are served in turn, except those that have gone meanwhile.
func TestGatewayIsFrozenWithWaiters(t *testing.T) {
	t.Parallel()
	db, f := startMigrated(t, 3)
	w := newWaitingClients(db)
	holder := mustAcquire(t, f.at(1), w.lock, "holder", longTTLMS)
	leaving, leave := context.WithCancel(patient(t))
	defer leave()
	w.wait(leaving, t, f.at(0), "gone", 4)
	w.wait(patient(t), t, f.at(0), "patient", 4)
	w.wait(patient(t), t, f.at(1), "behind", 4)
	f.at(0).Freeze(t)
	leave()
	mustRelease(t, f.at(2), holder)
	await.True(t, "those behind are served", func() bool { return w.countServed() == 4 })
	w.wantServed(t, "behind", 4)

	holder = mustAcquire(t, f.at(1), w.lock, "holder", longTTLMS)
	w.wait(patient(t), t, f.at(2), "late", 4)
	f.at(0).Thaw(t)
	mustRelease(t, f.at(2), holder)
	w.waiting.Wait()
	w.wantServed(t, "patient", 4)
	w.wantServed(t, "late", 4)
	if n := w.countServed(); n != 12 {
		t.Errorf("%d were served, want the 12 that stayed", n)
	}
	w.wantApart(t)
	await.True(t, "the queue is empty", func() bool {
		return query[int](t, db, "select count(*) from fence.waiters") == 0
	})
}
