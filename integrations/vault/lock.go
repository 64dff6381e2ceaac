package vault

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/hashicorp/vault/sdk/physical"

	"github.com/fencegate/fencegate/lockclient"
)

// untilStopped is a wait that only its ctx ends.
const untilStopped = time.Duration(math.MaxInt64) / 2

// lockMetadata is kept with the lease of a Lock, for the other nodes.
type lockMetadata struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

// Lock is the lock of the active node. It is safe for concurrent use.
type Lock struct {
	backend  *Backend
	metadata lockMetadata

	mu   sync.Mutex
	held *lockclient.Lease // nil: not locked
}

// LockWith returns a lock, whose value others can read.
func (b *Backend) LockWith(key, value string) (physical.Lock, error) {
	return &Lock{backend: b, metadata: lockMetadata{Key: key, Value: value}}, nil
}

// HAEnabled says whether nodes of Vault should lock.
func (b *Backend) HAEnabled() bool { return b.ha }

// RegisterActiveNodeLock lets all later writes be made under this lock only.
func (b *Backend) RegisterActiveNodeLock(lock physical.Lock) error {
	active, ok := lock.(*Lock)
	if !ok {
		return fmt.Errorf("the lock %T is of another backend", lock)
	}
	b.writer.register(active)
	return nil
}

// Lock waits until it has the lock, or stop is closed: then it returns no channel. The channel is closed when the lock
// is lost, no later than another node may be granted it.
func (l *Lock) Lock(stop <-chan struct{}) (<-chan struct{}, error) {
	if lease := l.lease(); lease != nil && lease.Valid() {
		return nil, errors.New("the lock is locked already")
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		select {
		case <-stop:
			cancel()
		case <-ctx.Done():
		}
	}()
	l.backend.yield(ctx)
	lease, err := l.backend.client.Acquire(ctx, l.backend.resource, lockclient.WithTTL(l.backend.lockTTL),
		lockclient.WithMetadata(l.metadata), lockclient.WithWait(untilStopped))
	if ctx.Err() != nil {
		lease.ReleaseOnce()
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	l.hold(lease)
	l.backend.writer.locked(l)
	return lease.Context().Done(), nil
}

// Unlock releases the lock.
func (l *Lock) Unlock() error {
	lease := l.hold(nil)
	if lease == nil {
		return nil
	}
	err := lease.Release(context.Background())
	if errors.Is(err, lockclient.ErrLeaseLost) {
		return nil
	}
	return err
}

// Value says whether any node has the lock, and its value.
func (l *Lock) Value() (held bool, value string, err error) {
	lock, err := l.backend.client.API().Lock(context.Background(), l.backend.resource)
	if errors.Is(err, lockclient.ErrNotFound) {
		return false, "", nil
	}
	if err != nil || lock.State != "held" || len(lock.Holders) == 0 {
		return false, "", err
	}
	var holder lockMetadata
	_ = json.Unmarshal(lock.Holders[0].Metadata, &holder) // a write without a lock has no metadata
	if holder.Key != l.metadata.Key {
		return false, "", nil
	}
	return true, holder.Value, nil
}

// lease returns the lease while the lock is locked; nil otherwise. It may be lost: the fence decides on the writes.
func (l *Lock) lease() *lockclient.Lease {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.held
}

// hold sets the lease, and returns the one before.
func (l *Lock) hold(lease *lockclient.Lease) (before *lockclient.Lease) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before, l.held = l.held, lease
	return before
}
