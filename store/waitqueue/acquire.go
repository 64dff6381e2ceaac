package waitqueue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/internal/timing"
)

const (
	// leaveTimeout bounds the statements by which a caller who gives up leaves the line.
	leaveTimeout = 10 * time.Second
	// askAgainMin and askAgainMax are the pauses between attempts to keep a place while the database is away.
	askAgainMin = 50 * time.Millisecond
	askAgainMax = time.Second
)

// Acquire takes a lock, and waits for it as long as the request says: first come, first served, over all Services. See
// [Store.Acquire] for what it returns; where the time is over, that is ErrLeaseHeld. In addition it returns ErrDeadlock (a
// DeadlockError) if the wait would close a cycle of owners who wait for each other; and when ctx ends while it waits, it leaves the line
// and returns an error that wraps ctx's. What was granted by then is released.
//
// While the database is away, those who wait keep trying to keep their places.
func (l *Queue) Acquire(ctx context.Context, request store.AcquireRequest) (store.Lease, error) {
	if request.Wait == 0 {
		return l.store.Acquire(ctx, request)
	}
	request, err := request.Check()
	if err != nil {
		return store.Lease{}, err
	}
	if request.RequestID == "" {
		// By this the request can be sent again, whatever became of the first answer.
		request.RequestID = "fencegate:" + uuid.NewString()
	}
	return l.acquire(ctx, request)
}

// acquire asks for a place, and asks again each time that it may have been lost.
func (l *Queue) acquire(ctx context.Context, request store.AcquireRequest) (lease store.Lease, err error) {
	w := &waiter{request: request.RequestID, subtree: request.Scope == store.Subtree, told: make(chan told, 1)}
	l.join(request.Lock, w)
	defer func() { l.quit(request.Lock, w, lease) }()
	deadline := time.Now().Add(request.Wait)
	pause := askAgainMin
	queued := false // perhaps
	for {
		request.Wait = max(time.Until(deadline), time.Millisecond).Truncate(time.Millisecond)
		var again bool
		lease, again, err = l.askAndWait(ctx, request, w, deadline, queued)
		if again {
			queued, pause = true, askAgainMin
			continue
		}
		if !errors.Is(err, store.ErrUnavailable) {
			return lease, err
		}
		queued = queued || w.ticket > 0 || store.OutcomeOf(err) == store.OutcomeUnknown
		stuck := errors.Is(err, store.ErrLocked) || errors.Is(err, store.ErrNoConnection)
		if !queued && !stuck || time.Now().After(deadline) || ctx.Err() != nil {
			return l.despair(request.Lock, w, queued, err)
		}
		l.store.CountRetry(err)
		timing.Sleep(ctx, pause)
		pause = min(2*pause, askAgainMax)
	}
}

// askAndWait asks for the lock or a place in the line, and waits there. again: the place may be lost, ask again. Those who ask again
// may be thousands at once, after a reconnect: they have few connections, so that others' acquires get through.
func (l *Queue) askAndWait(
	ctx context.Context, request store.AcquireRequest, w *waiter, deadline time.Time, queued bool,
) (lease store.Lease, again bool, err error) {
	send := l.store.Enqueue
	if queued {
		send = l.store.Requeue
	}
	asking, cancel := context.WithTimeout(context.WithoutCancel(ctx), claimTimeout)
	defer cancel()
	if err := l.known(asking); err != nil {
		return store.Lease{}, false, store.NotApplied(err)
	}
	l.ask(request.Lock, w)
	answer, err := send(asking, request, l.gateway)
	l.asked(request.Lock, w, answer.Ticket, answer.Left)
	if err != nil || answer.Ticket == 0 {
		return answer.Lease, false, err
	}

	timer := time.NewTimer(time.Until(deadline))
	defer timer.Stop()
	select {
	case news := <-w.told:
		return news.lease, news.again, news.err
	case <-timer.C:
		lease, err = l.giveUp(request, w)
		return lease, false, err
	case <-ctx.Done():
		return store.Lease{}, false, fmt.Errorf("left the line for %s: %w", request.Lock, errors.Join(context.Cause(ctx), l.goAway(request.Lock, w)))
	}
}

// giveUp leaves the line, since the time is over. Who was granted the lock at the last moment has it; others are told who is in the way.
func (l *Queue) giveUp(request store.AcquireRequest, w *waiter) (store.Lease, error) {
	ctx, cancel := context.WithTimeout(context.Background(), leaveTimeout)
	defer cancel()
	l.mu.Lock()
	w.leaving = true
	shared := l.queues[request.Lock].others(w)
	l.mu.Unlock()
	if !shared {
		if err := l.leave(ctx, place{lock: request.Lock, request: w.request}); err != nil {
			return store.Lease{}, err
		}
	}
	request.Wait = 0
	answer, err := l.store.Requeue(ctx, request, l.gateway) // by the request_id it finds what was granted
	return answer.Lease, err
}

// goAway leaves the line, since nobody is there to hold the lock. What was granted at the last moment is released: here if it has been
// told of, and else by the claim that hears of it. A lease that another gateway was granted for the same request is not touched.
func (l *Queue) goAway(lock store.Name, w *waiter) error {
	ctx, cancel := context.WithTimeout(context.Background(), leaveTimeout)
	defer cancel()
	l.mu.Lock()
	w.leaving, w.gone = true, true
	shared := l.queues[lock].others(w)
	var news told
	select {
	case news = <-w.told:
	default:
	}
	last := false
	if news.lease.Token > 0 {
		*news.takers--
		last = *news.takers == 0
	}
	l.mu.Unlock()
	switch {
	case news.lease.Token > 0 && last:
		return l.giveBack(ctx, news.lease)
	case news.lease.Token > 0, shared:
		return nil // another caller has the lease, or the place
	}
	return l.leave(ctx, place{lock: lock, request: w.request})
}

// despair ends the wait of a caller who can't be told more than err, and who may be in the line: he has the lease if he heard of one, and
// leaves the line when the database is back.
func (l *Queue) despair(lock store.Name, w *waiter, queued bool, err error) (store.Lease, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !w.gone {
		select {
		case news := <-w.told:
			if news.lease.Token > 0 {
				return news.lease, nil
			}
		default:
		}
	}
	w.leaving, w.gone = true, true
	if queued && !l.queues[lock].others(w) {
		l.left = append(l.left, place{lock: lock, request: w.request, since: time.Now()})
	}
	return store.Lease{}, err
}

// place is a place in the line of a lock that nobody wants any more.
type place struct {
	lock    store.Name
	request string
	since   time.Time
}

// leave takes a place out of the line, if it is there and has not been taken over by another gateway.
func (l *Queue) leave(ctx context.Context, p place) error {
	return l.store.LeaveQueue(ctx, l.gateway, p.lock, p.request)
}

// leaveLate takes those out of their lines who could not leave while the database was away: otherwise they would hold others up until their
// time is over. It tries until nothing can be under way any more by which the place would be taken after all. A lock whose fence another session
// has locked is left for the next time, and does not keep the others.
func (l *Queue) leaveLate(ctx context.Context) error {
	l.mu.Lock()
	left := slices.Clone(l.left)
	l.mu.Unlock()
	var failed []error
	stuck := map[store.Name]bool{}
	for _, p := range left {
		if stuck[p.lock] {
			continue
		}
		leaving, cancel := context.WithTimeout(ctx, leaveTimeout)
		sent := time.Now()
		err := l.leave(leaving, p)
		cancel()
		if err != nil {
			failed = append(failed, err)
			if !errors.Is(err, store.ErrLocked) {
				break
			}
			stuck[p.lock] = true
			continue
		}
		if sent.Sub(p.since) > claimTimeout {
			l.mu.Lock()
			l.left = slices.DeleteFunc(l.left, func(other place) bool { return other == p })
			l.mu.Unlock()
		}
	}
	return errors.Join(append(failed, l.giveBackLate(ctx))...)
}

// orphansMax bounds the leases that are still to be given back. What is more ends with its TTL.
const orphansMax = 10_000

// orphan is a lease that nobody has heard of.
type orphan struct {
	lease store.Lease
	since time.Time
}

// giveBack releases a lease whose owner has left. Where that fails, it is tried again: a lease without an owner would keep the lock until its
// TTL is over.
func (l *Queue) giveBack(ctx context.Context, lease store.Lease) error {
	err := l.store.GiveBack(ctx, lease)
	if errors.Is(err, store.ErrUnavailable) {
		l.mu.Lock()
		defer l.mu.Unlock()
		if len(l.orphans) < orphansMax {
			l.orphans = append(l.orphans, orphan{lease, time.Now()})
		}
	}
	return err
}

// giveBackLate tries again what giveBack could not do, each lease once. One that has ended meanwhile is forgotten.
func (l *Queue) giveBackLate(ctx context.Context) error {
	l.mu.Lock()
	orphans := l.orphans
	l.orphans = nil
	l.mu.Unlock()
	var failed []error
	for i, o := range orphans {
		if time.Since(o.since) > max(o.lease.TTL, claimTimeout) {
			continue
		}
		giving, cancel := context.WithTimeout(ctx, leaveTimeout)
		err := l.store.GiveBack(giving, o.lease)
		cancel()
		if err == nil {
			continue
		}
		failed = append(failed, err)
		rest := orphans[i : i+1]
		if !errors.Is(err, store.ErrLocked) {
			rest = orphans[i:] // the database is away
		}
		l.mu.Lock()
		l.orphans = append(l.orphans, rest...)
		l.mu.Unlock()
		if len(rest) > 1 {
			break
		}
	}
	return errors.Join(failed...)
}
