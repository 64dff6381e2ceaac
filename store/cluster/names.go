package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/engine"
	"github.com/fencegate/fencegate/store/watch"
)

// The methods below are those of engine.Engine, at the node of the name.

// Acquire takes a lock. One in a session is ErrUnsupported.
func (c *Cluster) Acquire(ctx context.Context, request *store.AcquireRequest, lease *store.Lease) error {
	if request.SessionID != uuid.Nil {
		return errNoSessions
	}
	begun, wait := time.Now(), request.Wait
	return c.at(ctx, request.Lock, func(on *engine.Engine) error {
		if wait > 0 {
			request.Wait = max(time.Millisecond, (wait - time.Since(begun)).Round(time.Millisecond))
		}
		return on.Acquire(ctx, request, lease)
	})
}

// Renew makes a live lease last longer.
func (c *Cluster) Renew(ctx context.Context, ref store.LeaseRef, ttl time.Duration) (store.Lease, error) {
	return get(ctx, c, ref.Lock, func(on *engine.Engine) (store.Lease, error) { return on.Renew(ctx, ref, ttl) })
}

// ReleaseLease ends a lease and closes the fence behind it.
func (c *Cluster) ReleaseLease(ctx context.Context, ref store.LeaseRef) (store.Released, error) {
	return get(ctx, c, ref.Lock, func(on *engine.Engine) (store.Released, error) { return on.ReleaseLease(ctx, ref) })
}

// Break ends whatever lease there is on a lock.
func (c *Cluster) Break(ctx context.Context, lock store.Name, reason string) (store.Lease, error) {
	return get(ctx, c, lock, func(on *engine.Engine) (store.Lease, error) { return on.Break(ctx, lock, reason) })
}

// Lock returns a lock as it is now.
func (c *Cluster) Lock(ctx context.Context, name store.Name) (store.Lock, error) {
	lock, _, err := c.LockAndFence(ctx, name)
	return lock, err
}

// LockAndFence returns a lock and the fence of its name.
func (c *Cluster) LockAndFence(ctx context.Context, name store.Name) (lock store.Lock, fence *store.Fence, err error) {
	err = c.at(ctx, name, func(on *engine.Engine) (err error) {
		lock, fence, err = on.LockAndFence(ctx, name)
		return unlessMissed(err, func() (bool, error) { return on.MissesLock(ctx, name) })
	})
	return lock, fence, err
}

// unlessMissed returns ErrElsewhere for what was not found, unless the node misses it while it has the name: between
// two statements, a name may leave and come.
func unlessMissed(err error, misses func() (bool, error)) error {
	if !errors.Is(err, store.ErrNotFound) {
		return err
	}
	missed, failed := misses()
	switch {
	case failed != nil:
		return failed
	case !missed:
		return store.ErrElsewhere
	}
	return err
}

// Watch subscribes to the states of a lock. The subscription ends when the lock moves to another node.
func (c *Cluster) Watch(ctx context.Context, lock store.Name) (*watch.Subscription, error) {
	return get(ctx, c, lock, func(on *engine.Engine) (*watch.Subscription, error) { return on.Watch(ctx, lock) })
}

// RequestedLease returns the lease that a request_id was granted.
func (c *Cluster) RequestedLease(ctx context.Context, lock store.Name, requestID string) (store.Lease, error) {
	return get(ctx, c, lock, func(on *engine.Engine) (store.Lease, error) {
		lease, err := on.RequestedLease(ctx, lock, requestID)
		return lease, unlessMissed(err, func() (bool, error) { return on.MissesLease(ctx, lock, requestID) })
	})
}

// Commit decides one write.
func (c *Cluster) Commit(ctx context.Context, write store.Write) (store.Result, error) {
	return get(ctx, c, write.Resource, func(on *engine.Engine) (store.Result, error) { return on.Commit(ctx, write) })
}

// Submit queues a write and calls done once with its verdict. Writes to one resource keep their order, except for those
// that meet a move.
func (c *Cluster) Submit(ctx context.Context, write store.Write, done func(store.Result, error)) {
	on, err := c.engineOf(write.Resource)
	if err != nil {
		go done(store.Result{}, err)
		return
	}
	on.Submit(ctx, write, func(result store.Result, err error) {
		if !errors.Is(err, store.ErrElsewhere) {
			done(result, err)
			return
		}
		go func() { done(c.Commit(ctx, write)) }()
	})
}

// SetFence sets the fence of a name whose tokens another lock service issues.
func (c *Cluster) SetFence(
	ctx context.Context, resource store.Name, last store.Accepted, reason string,
) (store.Accepted, error) {
	return get(ctx, c, resource, func(on *engine.Engine) (store.Accepted, error) {
		return on.SetFence(ctx, resource, last, reason)
	})
}

// Transact applies all operations of a transaction, or none. Resources and tables of several nodes are ErrUnsupported.
func (c *Cluster) Transact(ctx context.Context, transaction store.Transaction) (store.TransactionResult, error) {
	if _, err := transaction.Check(); err != nil {
		return store.TransactionResult{}, err
	}
	first := transaction.Tokens[0].Resource
	return get(ctx, c, first, func(on *engine.Engine) (store.TransactionResult, error) {
		for _, token := range transaction.Tokens[1:] {
			other, err := c.engineOf(token.Resource)
			if err == nil && other != on {
				err = fmt.Errorf("%w: %s and %s are at two nodes of the cluster, and a transaction is at one",
					store.ErrUnsupported, first, token.Resource)
			}
			if err != nil {
				return store.TransactionResult{}, err
			}
		}
		return on.Transact(ctx, transaction)
	})
}

// Record returns a record.
func (c *Cluster) Record(ctx context.Context, resource, key store.Name) (store.Record, error) {
	return get(ctx, c, resource, func(on *engine.Engine) (store.Record, error) {
		record, err := on.Record(ctx, resource, key)
		return record, unlessMissed(err, func() (bool, error) { return on.MissesRecord(ctx, resource, key) })
	})
}

// DurableRecord returns a record that no failover takes back.
func (c *Cluster) DurableRecord(ctx context.Context, resource, key store.Name) (store.Record, error) {
	return get(ctx, c, resource, func(on *engine.Engine) (store.Record, error) {
		record, err := on.DurableRecord(ctx, resource, key)
		return record, unlessMissed(err, func() (bool, error) { return on.MissesRecord(ctx, resource, key) })
	})
}

// Records returns records of a resource.
func (c *Cluster) Records(ctx context.Context, query store.RecordQuery) ([]store.Record, error) {
	return get(ctx, c, query.Resource, func(on *engine.Engine) ([]store.Record, error) {
		records, err := on.Records(ctx, query)
		if err == nil && len(records) == 0 {
			_, err = on.Fence(ctx, query.Resource)
			err = unlessMissed(err, func() (bool, error) { return on.MissesFence(ctx, query.Resource) })
			if errors.Is(err, store.ErrNotFound) {
				err = nil
			}
		}
		return records, err
	})
}

// Fence returns the fence of a resource.
func (c *Cluster) Fence(ctx context.Context, resource store.Name) (store.Fence, error) {
	return get(ctx, c, resource, func(on *engine.Engine) (store.Fence, error) {
		fence, err := on.Fence(ctx, resource)
		return fence, unlessMissed(err, func() (bool, error) { return on.MissesFence(ctx, resource) })
	})
}

// Waits returns who waits for a lock, and for whom.
func (c *Cluster) Waits(ctx context.Context, lock store.Name, limit int, within []string) (store.WaitGraph, error) {
	return get(ctx, c, lock, func(on *engine.Engine) (store.WaitGraph, error) { return on.Waits(ctx, lock, limit, within) })
}
