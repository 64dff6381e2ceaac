package redislease

import (
	"cmp"
	"container/list"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/fencegate/fencegate/store"
)

// markerName and channelName follow the key prefix. No lock has the name of the marker: no name has an empty segment.
const markerName, channelName = "fencegate//server", "fencegate:released"

// Database is what a [postgres.Store] does for leases that are kept elsewhere.
type Database interface {
	CheckOwner(ctx context.Context, request store.AcquireRequest) error
	GrantElsewhere(ctx context.Context, grant store.ElsewhereGrant) (store.Lease, error)
	GiveBack(ctx context.Context, lease store.Lease) error
	ReleaseLease(ctx context.Context, ref store.LeaseRef) (store.Released, error)
	LostReason(ctx context.Context, ref store.LeaseRef) error
	LeasesElsewhere(ctx context.Context, provider store.Provider, lock store.Name, limit int) ([]store.LeaseRef, error)
	SettleLeases(ctx context.Context, seen []store.LeaseStatus) error
}

// Leases keeps leases in Redis. Its methods may be called at the same time.
type Leases struct {
	db      Database
	config  Config
	servers []*server
	queues  queues
	running sync.WaitGroup // calls whose answers nobody waits for
}

var silence = sync.OnceFunc(logging.Disable)

// New returns Leases over a database. It connects with the first calls. It waits to be Run: before that, waiters are
// polled, and a server of redlock that was started does not vote. It returns ErrInvalid if the configuration is outside
// its limits.
//
// It turns off the log of go-redis, which is global: errors and Stats have the failures.
func New(db Database, config Config) (*Leases, error) {
	config, err := config.withDefaults()
	if err != nil {
		return nil, err
	}
	silence()
	servers, err := config.connect()
	if err != nil {
		return nil, err
	}
	return &Leases{db: db, config: config, servers: servers, queues: queues{locks: map[store.Name]*list.List{}}}, nil
}

// Close waits for the calls in flight and ends the connections. Run must have returned, and no other method may be
// called any more.
func (l *Leases) Close() {
	l.running.Wait()
	closeAll(l.servers)
}

// Provider returns what keeps the leases.
func (l *Leases) Provider() store.Provider { return l.config.Provider }

// Stats returns the state of each server, in the order of Config.URLs.
func (l *Leases) Stats() []ServerStats {
	stats := make([]ServerStats, len(l.servers))
	for i, s := range l.servers {
		stats[i] = s.snapshot()
	}
	return stats
}

// Waiting returns how many acquires wait in this process.
func (l *Leases) Waiting() int { return l.queues.all() }

// Renew makes a live lease last ttl from now, but not longer than its HoldUntil; 0: the TTL that it has. It asks the
// servers alone: it notices neither a change of policies nor a newer lease that was granted while they had lost this
// one. ExpiresAt is by the clock of the server that ends it first. It returns ErrLeaseLost (a LostError), ErrNotFound,
// ErrInvalid, or ErrUnavailable.
func (l *Leases) Renew(ctx context.Context, ref store.LeaseRef, ttl time.Duration) (store.Lease, error) {
	limited := cmp.Or(ttl, store.TTLMin) // the TTL that it has was within the limits when it was granted
	if _, err := l.check(store.AcquireRequest{Lock: ref.Lock, OwnerID: ref.OwnerID, TTL: limited}); err != nil {
		return store.Lease{}, err
	}
	begun := time.Now()
	answers := l.send(ctx, ttl, decided(len(l.servers), said("renewed")),
		renewScript, l.keys(ref.Lock), append(refArgs(ref), ttl.Milliseconds())...)
	renewed := count(answers, said("renewed"))
	switch {
	case renewed >= l.quorum():
		return l.renewed(ref, answers, time.Since(begun))
	case count(answers, said("gone", "other")) < l.quorum():
		return store.Lease{}, l.unavailable(store.OutcomeUnknown, answers)
	case renewed > 0: // what a minority still has is in the way of others
		l.running.Go(func() { l.deleteKeys(context.WithoutCancel(ctx), ref, l.servers) })
	}
	err := l.db.LostReason(ctx, ref)
	if errors.Is(err, store.ErrUnavailable) { // the loss is certain, its reason is not
		err = &store.LostError{Lock: ref.Lock, Reason: "expired"}
	}
	return store.Lease{}, err
}

// renewed returns the lease that a quorum has renewed. It ends when the first server of them ends it.
func (l *Leases) renewed(ref store.LeaseRef, answers []answer[reply], took time.Duration) (store.Lease, error) {
	var lease store.Lease
	for _, a := range answers {
		nowMS, ttlMS, v := a.value.number(1), a.value.number(2), parse(a.value.text(4))
		if v == nil {
			continue // of a server that has not renewed it
		}
		if !l.valid(ms(ttlMS), took) {
			return store.Lease{}, l.failed(store.OutcomeUnknown, fmt.Errorf("the renewal took %s, too long", took))
		}
		one := v.lease(ref.Lock, nowMS, (ms(ttlMS) - l.drift(ms(ttlMS))).Milliseconds())
		one.Late = ms(max(0, a.value.number(3)))
		if lease.Token == 0 || one.ExpiresAt.Before(lease.ExpiresAt) {
			lease = one
		}
	}
	return lease, nil
}

// ReleaseLease ends a lease: first its fence in the database, so that no delayed write of the holder is admitted any
// more, then its key. It returns the errors of [postgres.Store.ReleaseLease]. With OutcomeUnknown, the key may still be
// there until its TTL is over: send the release again.
func (l *Leases) ReleaseLease(ctx context.Context, ref store.LeaseRef) (store.Released, error) {
	released, err := l.db.ReleaseLease(ctx, ref)
	if err != nil && !errors.Is(err, store.ErrLeaseLost) {
		return store.Released{}, err
	}
	// What the holder of a lease that was broken still has in Redis goes, too.
	answers := l.deleteKeys(ctx, ref, l.servers)
	l.queues.woken(ref.Lock)
	if err == nil && count(answers, said("released", "gone")) < l.quorum() {
		err = l.unavailable(store.OutcomeUnknown, answers)
	}
	return released, err
}

// Forget deletes the key of a lock, of any program, after the database has broken the lease with that token (0:
// there was none). It does not delete a lease that was granted since, nor what can't be a lock: another type than
// string, or a string that never expires, unless fencegate has written it. It returns ErrUnavailable.
func (l *Leases) Forget(ctx context.Context, lock store.Name, broken int64) error {
	deleted := said("deleted", "newer")
	answers := l.send(ctx, 0, decided(len(l.servers), deleted), forgetScript, l.keys(lock), l.channel(), string(lock), broken)
	l.queues.woken(lock)
	if count(answers, deleted) < l.quorum() {
		return l.unavailable(store.OutcomeUnknown, answers)
	}
	return nil
}

// deleteKeys deletes a lease, or with token 0 its reservation, at some servers, until a quorum of all has answered.
func (l *Leases) deleteKeys(ctx context.Context, ref store.LeaseRef, at []*server) []answer[reply] {
	return ask(ctx, &l.running, at, l.config.Timeout, func(ctx context.Context, s *server) (reply, error) {
		return s.run(ctx, releaseScript, l.keys(ref.Lock), append(refArgs(ref), l.channel(), string(ref.Lock))...)
	}, decided(len(l.servers), said("released", "gone")))
}

// send runs a script about a lease with that TTL (0: unknown) on all servers, until the answers are enough.
func (l *Leases) send(
	ctx context.Context, ttl time.Duration, enough func([]answer[reply]) bool,
	script *redis.Script, keys []string, args ...any,
) []answer[reply] {
	timeout := l.config.Timeout
	if ttl > 0 {
		timeout = min(timeout, ttl)
	}
	return ask(ctx, &l.running, l.servers, timeout, func(ctx context.Context, s *server) (reply, error) {
		return s.run(ctx, script, keys, args...)
	}, enough)
}

func (l *Leases) quorum() int { return quorum(len(l.servers)) }

// keys are those of the scripts about a lock.
func (l *Leases) keys(lock store.Name) []string { return []string{l.config.KeyPrefix + string(lock)} }

func (l *Leases) channel() string { return l.config.KeyPrefix + channelName }

// drift is by how much the fastest clock of several servers may end a lease early.
func (l *Leases) drift(ttl time.Duration) time.Duration {
	if len(l.servers) == 1 {
		return 0
	}
	return l.config.drift(ttl)
}

// valid reports whether the quorum of a lease still has it after a call that took so long.
func (l *Leases) valid(ttl, took time.Duration) bool {
	return len(l.servers) == 1 || ttl-took-l.drift(ttl) > 0
}

// refArgs are the arguments by which scripts compare a lease.
func refArgs(ref store.LeaseRef) []any { return []any{ref.ID.String(), ref.OwnerID, ref.Token} }
