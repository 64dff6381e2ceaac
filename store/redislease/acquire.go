package redislease

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/internal/timing"
)

const (
	// reservationTTL is how long a lock stays reserved while its token is minted, whatever the TTL of the lease.
	reservationTTL = 5 * time.Second
	// splitsTime is for how long a lock is tried again where several callers have reserved it at a minority each; twice
	// the timeout of a server, if that is longer. splitPause is the longest pause before a try.
	splitsTime, splitPause = 300 * time.Millisecond, 50 * time.Millisecond
	// giveBackTimeout is for how long it is tried to give back a lease that no client was sent, and giveBackPause the time
	// between two tries.
	giveBackTimeout, giveBackPause = 5 * time.Second, 500 * time.Millisecond
	// notFencegate is shown as the owner of a key that another program has written.
	notFencegate = "(not fencegate)"
)

// Acquire takes a lock. It waits for it as long as the request says: first come, first served among the callers of this
// process. Between processes there is no order. When it has returned a lease, no write with an older token can commit
// on that name any more (P3).
//
// It returns ErrLeaseHeld (a HeldError), also for a key that another program has written; ErrLeaseLost if the lease
// that this RequestID was granted has ended; ErrUnsupported; ErrInvalid; ErrExternalAuthority; ErrUnavailable. When ctx
// ends, it returns an error that wraps the cause of ctx, and a lease granted by then is given back.
//
// A caller that finds the servers or the database unavailable fails at once. One that has waited before keeps trying.
func (l *Leases) Acquire(ctx context.Context, request store.AcquireRequest) (store.Lease, error) {
	request, err := l.check(request)
	if err == nil { // before an answer that Redis gives alone: that the lock is held, or the lease of the same request
		err = l.db.CheckOwner(ctx, request)
	}
	switch {
	case err != nil:
		return store.Lease{}, err
	case request.Wait > 0:
		return l.acquireInTurn(ctx, request)
	case l.queues.length(request.Lock) > 0: // a try does not jump the queue
		return l.look(ctx, request)
	}
	return l.acquire(ctx, request, 0)
}

// acquire takes a lock if it is free: it reserves the key, lets the database mint the token, which raises the fence,
// and confirms that the key is still reserved. The end of ctx does not interrupt it, but then the lease is given back.
func (l *Leases) acquire(ctx context.Context, request store.AcquireRequest, waited time.Duration) (store.Lease, error) {
	calls := context.WithoutCancel(ctx)
	reserved, err := l.reserve(calls, request)
	if err != nil || reserved.again.Token > 0 {
		reserved.again.Replayed = true
		return reserved.again, err
	}
	minting := time.Now()
	granted, err := l.mint(calls, request, reserved, waited)
	if err != nil {
		l.deleteKeys(calls, reserved.ref(request), l.servers)
		if store.OutcomeOf(err) == store.OutcomeUnknown {
			l.running.Go(func() { l.giveBackFound(calls, reserved.ref(request)) })
		}
		return store.Lease{}, err
	}
	var lease store.Lease
	if err = gone(ctx, request.Lock); err == nil {
		lease, err = l.confirm(calls, request, reserved, granted, minting)
	}
	if err == nil && request.RequestID == "" { // with one, the client may have the lease by the same request sent again
		err = gone(ctx, request.Lock)
	}
	if err != nil {
		_ = l.GiveBack(calls, granted)
		return store.Lease{}, err
	}
	return lease, nil
}

// gone returns an error if the client of an acquire is gone.
func gone(ctx context.Context, lock store.Name) error {
	if ctx.Err() == nil {
		return nil
	}
	return fmt.Errorf("the client of the acquire of %s is gone: %w", lock, context.Cause(ctx))
}

// reservation is a key that waits for its token.
type reservation struct {
	id    uuid.UUID
	text  string      // the value of the key
	until time.Time   // until when a quorum has it for certain
	again store.Lease // with a token: the request was sent before, and this is its lease
	// tried is closed for each server when its answer has come, which may be after those of a quorum.
	tried map[*server]chan struct{}
}

func (r reservation) ref(request store.AcquireRequest) store.LeaseRef {
	return store.LeaseRef{Lock: request.Lock, OwnerID: request.OwnerID, ID: r.id}
}

// reserve takes the key at a quorum of the servers, or finds the lease of the same request. Each attempt has a lease_id
// of its own, so that the late end of one can't take anything from the next.
func (l *Leases) reserve(ctx context.Context, request store.AcquireRequest) (reservation, error) {
	began := time.Now()
	for {
		r, answers, err := l.tryReserve(ctx, request)
		if err != nil || count(answers, said("reserved")) >= l.quorum() && time.Now().Before(r.until) {
			return r, err
		}
		l.unreserve(ctx, r.ref(request), answers)
		lease, split, err := l.refused(request, answers)
		patience := time.Duration(0)
		switch {
		case errors.Is(err, errPending):
			patience = reservationTTL
		case split:
			patience = max(splitsTime, 2*l.config.Timeout)
		}
		if time.Since(began) >= patience {
			r.again = lease
			return r, err
		}
		timing.Sleep(ctx, rand.N(splitPause)) //nolint:gosec // jitter needs no secrecy
	}
}

// tryReserve asks the servers once. Where a quorum does not reserve the key, it waits for the others, too.
func (l *Leases) tryReserve(
	ctx context.Context, request store.AcquireRequest,
) (r reservation, answers []answer[reply], err error) {
	r = reservation{
		id: store.NewLeaseID(l.config.Provider), until: time.Now().Add(reservationTTL - l.drift(reservationTTL)),
		tried: make(map[*server]chan struct{}, len(l.servers)),
	}
	if r.text, err = newValue(request, r.id).encode(); err != nil {
		return r, nil, err
	}
	for _, s := range l.servers {
		r.tried[s] = make(chan struct{})
	}
	answers = ask(ctx, &l.running, l.servers, l.config.Timeout, func(ctx context.Context, s *server) (reply, error) {
		defer close(r.tried[s])
		return s.run(ctx, reserveScript, l.reserveKeys(request.Lock), r.text, reservationTTL.Milliseconds(), l.restMS())
	}, func(answers []answer[reply]) bool { return count(answers, said("reserved")) >= l.quorum() })
	return r, answers, nil
}

// refused returns what the answers to a reservation mean that a quorum has not made: the lease of the same request, or
// who holds the lock; split where nobody has a quorum.
func (l *Leases) refused(request store.AcquireRequest, answers []answer[reply]) (lease store.Lease, split bool, err error) {
	if count(answers, said("reserved", "held")) < l.quorum() {
		return lease, false, l.unavailable(store.OutcomeNotApplied, answers)
	}
	var keys []seen
	for _, a := range answers {
		if a.err == nil && a.value.text(0) == "held" {
			keys = append(keys, newSeen(a.value, 1))
		}
	}
	lease, votes, err := l.holder(request, keys)
	return lease, votes < l.quorum(), err
}

// look returns the lease of the same request, or who holds the lock. It takes nothing.
func (l *Leases) look(ctx context.Context, request store.AcquireRequest) (store.Lease, error) {
	looked, err := l.lookAt(ctx, []store.Name{request.Lock}, l.config.Timeout)
	if err != nil {
		return store.Lease{}, err
	}
	var keys []seen
	for _, a := range looked {
		if a.err == nil && a.value[0].found {
			keys = append(keys, a.value[0])
		}
	}
	lease, _, err := l.holder(request, keys)
	return lease, err
}

// holder returns the lease of the same request, or a HeldError with what most of the keys have, and how many those are.
func (l *Leases) holder(request store.AcquireRequest, keys []seen) (store.Lease, int, error) {
	votes := map[string]int{}
	var most seen
	for _, key := range keys {
		votes[key.id()]++
		if !most.found || votes[key.id()] > votes[most.id()] || key.id() == most.id() && key.leftMS < most.leftMS {
			most = key
		}
	}
	held := &store.HeldError{Lock: request.Lock, QueueLength: l.queues.length(request.Lock)}
	if !most.found {
		return store.Lease{}, 0, held
	}
	same := votes[most.id()]
	held.OwnerID, held.Remaining = notFencegate, most.remaining()
	held.ExpiresAt = time.UnixMilli(most.nowMS).Add(held.Remaining)
	if most.value != nil {
		held.OwnerID, held.Principal = most.value.OwnerID, most.value.Principal
		again, err := most.value.answers(request)
		switch {
		case err != nil:
			return store.Lease{}, same, err
		case again && most.value.Token > 0 && same >= l.quorum():
			return most.value.lease(request.Lock, most.nowMS, most.leftMS), same, nil
		case again && most.value.Token == 0:
			return store.Lease{}, same, fmt.Errorf("%w: %w", errPending, held)
		case most.value.Token > 0:
			return store.Lease{}, same, &announcedError{held}
		}
	}
	return store.Lease{}, same, held
}

// mint lets the database grant the lease that is reserved, for as long as it is.
func (l *Leases) mint(
	ctx context.Context, request store.AcquireRequest, reserved reservation, waited time.Duration,
) (store.Lease, error) {
	ctx, cancel := context.WithDeadline(ctx, reserved.until)
	defer cancel()
	return l.db.GrantElsewhere(ctx, store.ElsewhereGrant{
		Lock: request.Lock, OwnerID: request.OwnerID, LeaseID: reserved.id, TTL: request.TTL,
		RequestID: request.RequestID, Metadata: request.Metadata, Principal: request.Principal, Waited: waited,
	})
}

// confirm writes the lease over its reservation, and starts its TTL.
func (l *Leases) confirm(
	ctx context.Context, request store.AcquireRequest, reserved reservation, granted store.Lease, minting time.Time,
) (store.Lease, error) {
	text, err := newValue(request, reserved.id).granted(granted).encode()
	if err != nil {
		return store.Lease{}, err
	}
	hold := ""
	if !granted.HoldUntil.IsZero() {
		hold = fmt.Sprint(max(1, (granted.HoldLeft - time.Since(minting)).Milliseconds()))
	}
	begun := time.Now()
	answers := ask(ctx, &l.running, l.servers, min(l.config.Timeout, granted.TTL),
		func(ctx context.Context, s *server) (reply, error) {
			select { // the reservation comes first
			case <-reserved.tried[s]:
			case <-ctx.Done():
			}
			return s.run(ctx, confirmScript, l.keys(granted.Lock), reserved.text, text, granted.TTL.Milliseconds(),
				granted.Token, hold, l.channel(), string(granted.Lock))
		}, decided(len(l.servers), said("confirmed")))
	switch took := time.Since(begun); {
	case count(answers, said("confirmed", "lost")) < l.quorum():
		return store.Lease{}, l.unavailable(store.OutcomeUnknown, answers)
	case count(answers, said("confirmed")) < l.quorum():
		return store.Lease{}, l.failed(store.OutcomeNotApplied, errLost)
	case !l.valid(granted.TTL, took):
		return store.Lease{}, l.failed(store.OutcomeNotApplied, fmt.Errorf("%w: the servers took %s", errLost, took))
	}
	lease := granted
	// The TTL began later than that. Redis counts in milliseconds.
	lease.ExpiresAt = granted.GrantedAt.Add(granted.TTL - l.drift(granted.TTL)).Truncate(time.Millisecond)
	if !granted.HoldUntil.IsZero() && granted.HoldUntil.Before(lease.ExpiresAt) {
		lease.ExpiresAt = granted.HoldUntil
	}
	return lease, nil
}

// errPending says that the same request holds the lock, and that its token is being minted.
var errPending = errors.New("the same request is being granted")

var errLost = errors.New("the lock was lost while its token was minted")

// unreserve deletes a reservation that did not get a quorum: at once where it was made, and in the background where
// that is not known.
func (l *Leases) unreserve(ctx context.Context, ref store.LeaseRef, answers []answer[reply]) {
	var made []*server
	unknown := slices.Clone(l.servers)
	for _, a := range answers {
		if a.err != nil {
			continue
		}
		unknown = slices.DeleteFunc(unknown, func(s *server) bool { return s == a.server })
		if a.value.text(0) == "reserved" {
			made = append(made, a.server)
		}
	}
	l.running.Go(func() { l.deleteKeys(ctx, ref, unknown) })
	l.deleteKeys(ctx, ref, made)
}

// giveBackFound gives back the lease that the database may have granted for a reservation, if it shows up in time.
func (l *Leases) giveBackFound(ctx context.Context, reserved store.LeaseRef) {
	ctx, cancel := context.WithTimeout(ctx, giveBackTimeout)
	defer cancel()
	for ; ctx.Err() == nil; timing.Sleep(ctx, giveBackPause) {
		granted, err := l.db.LeasesElsewhere(ctx, l.config.Provider, reserved.Lock, lockLeasesMax)
		if err != nil {
			continue
		}
		for _, ref := range granted {
			if ref.ID == reserved.ID {
				_ = l.db.GiveBack(ctx, store.Lease{Lock: ref.Lock, OwnerID: ref.OwnerID, ID: ref.ID, Token: ref.Token})
				return
			}
		}
	}
}

// GiveBack ends a lease that its owner was not sent: its fence first, then its key. What can't be reached ends with
// the TTL. It returns ErrUnavailable if the fence could not be closed.
func (l *Leases) GiveBack(ctx context.Context, granted store.Lease) error {
	ctx, cancel := context.WithTimeout(ctx, giveBackTimeout)
	defer cancel()
	err := l.db.GiveBack(ctx, granted)
	l.deleteKeys(ctx, granted.Ref(), l.servers)
	return err
}

// check returns the request with its defaults, or why it can't be granted here.
func (l *Leases) check(request store.AcquireRequest) (store.AcquireRequest, error) {
	request, err := request.Check()
	if err != nil {
		return request, err
	}
	what := ""
	switch {
	case request.Mode != store.Exclusive:
		what = "a shared lease"
	case request.Scope != store.Node:
		what = "a subtree lease"
	case request.SessionID != uuid.Nil:
		what = "a lease in a session"
	}
	if what != "" {
		return request, &store.UnsupportedError{Provider: l.config.Provider, What: what}
	}
	if request.TTL > l.config.TTLMax {
		return request, fmt.Errorf("%w: ttl_ms is %d, the limit of --redlock-ttl-max is %d",
			store.ErrInvalid, request.TTL.Milliseconds(), l.config.TTLMax.Milliseconds())
	}
	return request, nil
}

// reserveKeys are the keys of reserve: with several servers the restart rule holds, which needs the marker.
func (l *Leases) reserveKeys(lock store.Name) []string {
	if len(l.servers) == 1 {
		return l.keys(lock)
	}
	return append(l.keys(lock), l.config.KeyPrefix+markerName)
}

// restMS is for how long a server that was started does not vote: as long as a lease may run that it has lost.
func (l *Leases) restMS() int64 {
	return (l.config.TTLMax + l.config.drift(l.config.TTLMax)).Milliseconds()
}
