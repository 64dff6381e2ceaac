package vault

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/hashicorp/vault/sdk/physical"

	"github.com/fencegate/fencegate/lockclient"
)

const (
	// unlockedTTL is how long after its last write a node without a lock keeps others from writing.
	unlockedTTL = 5 * time.Second
	// unlockedWait is how long a write without a lock waits until no other node may write.
	unlockedWait = 2 * unlockedTTL
)

// ErrNotActive says that this node has lost or released the lock under which it writes.
var ErrNotActive = errors.New("this node is not the active one any more: its write was not sent")

// writer finds the lease under which to write.
type writer struct {
	client   *lockclient.Client
	resource string

	mu sync.Mutex
	// active is the registered lock: nil before the first registration.
	active *Lock
	// newest is the lock of this backend that was locked last.
	newest *Lock
	// unlocked is the lease of writes without a lock.
	unlocked *lockclient.Lease
}

func (w *writer) register(active *Lock) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.active = active
}

func (w *writer) locked(lock *Lock) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.newest = lock
}

// lease returns the lease under which a write with this ctx is to be sent.
func (w *writer) lease(ctx context.Context) (*lockclient.Lease, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.active != nil && !physical.IsUnfencedWrite(ctx) {
		if lease := w.active.lease(); lease != nil {
			return lease, nil
		}
		return nil, ErrNotActive
	}
	if w.newest != nil {
		if lease := w.newest.lease(); lease != nil && lease.Valid() {
			return lease, nil
		}
	}
	return w.withoutLock(ctx)
}

// withoutLock takes the lease for a short time, or renews it. w.mu is held.
func (w *writer) withoutLock(ctx context.Context) (*lockclient.Lease, error) {
	if w.unlocked != nil {
		if w.unlocked.ExpiresIn() > unlockedTTL/2 || w.unlocked.Renew(ctx) == nil {
			return w.unlocked, nil
		}
		w.unlocked = nil
	}
	lease, err := w.client.Acquire(ctx, w.resource,
		lockclient.WithTTL(unlockedTTL), lockclient.WithWait(unlockedWait), lockclient.WithoutHeartbeat())
	w.unlocked = lease
	return lease, err
}

// yield releases the lease of writes without a lock, when none is under way, so that this node's own lock need not wait
// until it expires.
func (b *Backend) yield(ctx context.Context) {
	b.changes.Lock()
	defer b.changes.Unlock()
	b.writer.mu.Lock()
	defer b.writer.mu.Unlock()
	if b.writer.unlocked != nil {
		_ = b.writer.unlocked.Release(ctx) // otherwise it expires
		b.writer.unlocked = nil
	}
}
