package redislease

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/fencegate/fencegate/store"
)

// announcedFactor is how much less often a waiter polls while the end of the lease is announced to it.
const announcedFactor = 10

// announcedError is a HeldError of a lease whose end is published.
type announcedError struct{ *store.HeldError }

// Unwrap returns the HeldError.
func (e *announcedError) Unwrap() error { return e.HeldError }

// acquireInTurn takes a lock after the callers of this process that came before. It tries at once, and then whenever
// the lock may be free: its release is published, its key expires, or the time between two polls is over.
func (l *Leases) acquireInTurn(ctx context.Context, request store.AcquireRequest) (store.Lease, error) {
	began := time.Now()
	over := time.NewTimer(request.Wait)
	defer over.Stop()
	w := l.queues.join(request.Lock)
	defer l.queues.leave(w)

	patient := !w.isFirst()
	if patient {
		lease, err := l.awaitFirst(ctx, w, request, over.C)
		if err != nil || lease.Token > 0 {
			return lease, err
		}
	}
	for ; ctx.Err() == nil; patient = true {
		lease, err := l.acquire(ctx, request, time.Since(began).Truncate(time.Millisecond))
		if err == nil || ctx.Err() == nil && !worthWaiting(err, patient) {
			return lease, err
		}
		again := time.NewTimer(l.pause(err))
		select {
		case <-w.wake:
		case <-again.C:
		case <-over.C:
			again.Stop()
			return store.Lease{}, err
		case <-ctx.Done():
		}
		again.Stop()
	}
	return store.Lease{}, leftQueue(ctx, request.Lock)
}

// awaitFirst waits until the caller is the first of its lock. It returns a lease if the request was sent before, and an
// error if the caller need not wait any longer.
func (l *Leases) awaitFirst(
	ctx context.Context, w *waiter, request store.AcquireRequest, over <-chan time.Time,
) (store.Lease, error) {
	lease, err := l.look(ctx, request)
	if !errors.Is(err, store.ErrLeaseHeld) {
		return lease, err
	}
	select {
	case <-w.first:
		return store.Lease{}, nil
	case <-over:
		return l.look(ctx, request)
	case <-ctx.Done():
		return store.Lease{}, leftQueue(ctx, request.Lock)
	}
}

// worthWaiting reports whether an acquire that failed may succeed later. patient says that its caller has waited
// before: it does not lose its turn for a failover. Where the database may have granted a lease after all, only the
// client can decide what to do.
func worthWaiting(err error, patient bool) bool {
	return errors.Is(err, store.ErrLeaseHeld) || errors.Is(err, errLost) ||
		patient && store.OutcomeOf(err) == store.OutcomeNotApplied
}

// pause returns how long the first waiter of a lock waits at most before it tries again.
func (l *Leases) pause(err error) time.Duration {
	poll := l.config.PollInterval/2 + rand.N(l.config.PollInterval/2) //nolint:gosec // jitter needs no secrecy
	if announced := (*announcedError)(nil); errors.As(err, &announced) && l.listens() {
		poll *= announcedFactor
	}
	var held *store.HeldError
	if errors.As(err, &held) && held.Remaining > 0 {
		return min(poll, held.Remaining+time.Millisecond)
	}
	return poll
}

func leftQueue(ctx context.Context, lock store.Name) error {
	return fmt.Errorf("left the queue for %s: %w", lock, context.Cause(ctx))
}

// queues has the callers of this process that wait, first come, first served for each lock. Only the first of a lock
// asks the servers.
type queues struct {
	mu    sync.Mutex
	locks map[store.Name]*list.List // of *waiter
}

// waiter is a caller that waits for a lock.
type waiter struct {
	lock  store.Name
	at    *list.Element
	first chan struct{} // is closed when it is the first
	wake  chan struct{} // has one when the lock may be free
}

// join adds a caller.
func (q *queues) join(lock store.Name) *waiter {
	q.mu.Lock()
	defer q.mu.Unlock()
	waiting := q.locks[lock]
	if waiting == nil {
		waiting = list.New()
		q.locks[lock] = waiting
	}
	w := &waiter{lock: lock, first: make(chan struct{}), wake: make(chan struct{}, 1)}
	w.at = waiting.PushBack(w)
	if waiting.Len() == 1 {
		close(w.first)
	}
	return w
}

func (w *waiter) isFirst() bool {
	select {
	case <-w.first:
		return true
	default:
		return false
	}
}

// leave removes a caller, and makes the next one the first.
func (q *queues) leave(w *waiter) {
	q.mu.Lock()
	defer q.mu.Unlock()
	waiting := q.locks[w.lock]
	wasFirst := waiting.Front() == w.at
	waiting.Remove(w.at)
	switch {
	case waiting.Len() == 0:
		delete(q.locks, w.lock)
	case wasFirst:
		close(waiting.Front().Value.(*waiter).first)
	}
}

// woken makes the first waiter of a lock try at once.
func (q *queues) woken(lock store.Name) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if waiting := q.locks[lock]; waiting != nil {
		wakeFirst(waiting)
	}
}

// allWoken makes the first waiter of each lock try at once.
func (q *queues) allWoken() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, waiting := range q.locks {
		wakeFirst(waiting)
	}
}

func wakeFirst(waiting *list.List) {
	select {
	case waiting.Front().Value.(*waiter).wake <- struct{}{}:
	default: // it will try anyway
	}
}

// length returns how many wait for a lock.
func (q *queues) length(lock store.Name) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	if waiting := q.locks[lock]; waiting != nil {
		return waiting.Len()
	}
	return 0
}

// all returns how many wait.
func (q *queues) all() (n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, waiting := range q.locks {
		n += waiting.Len()
	}
	return n
}
