//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/fencegate/fencegate/internal/bench/rig"
)

type locksCmd struct {
	rig.Servers
	rig.Pace `set:"clients=1,8,64" set:"rounds=3" set:"duration=2s" set:"warmup=500ms"` //nolint:staticcheck // kong takes several "set"

	Measure    []string      `help:"What to measure: wake-up, cycles, leases, crowd." enum:"wake-up,cycles,leases,crowd" default:"wake-up,cycles,leases,crowd"`
	HandOffs   int           `help:"Wake-up: how many hand-offs of a lock are measured in a round." default:"500"`
	Gateways   []int         `help:"Wake-up, cycles: numbers of gateways to measure with." default:"1,2"`
	RedisFsync bool          `name:"redis-fsync" help:"Leases: Redis flushes each change before it answers (appendfsync always). Default: it keeps nothing on disk."`
	Waiters    int           `help:"Crowd: how many wait for one lock." default:"10000"`
	Idle       time.Duration `help:"Crowd: how long the load is observed while nothing happens." default:"10s"`
}

// Help is shown by --help.
func (locksCmd) Help() string {
	return "Runs gateways, etcd and Redis as processes of their own, and measures them in turn: how soon the next " +
		"waiter is granted a lock that is released, how many locks are acquired and released a second, the same and " +
		"heartbeats with " +
		"leases in Redis beside redsync and redislock, and what thousands of waiters cost. " + quoteRatios
}

// Validate is called by kong.
func (c locksCmd) Validate() error {
	if len(c.Gateways) == 0 || slices.Min(c.Gateways) < 1 || c.HandOffs < 1 || c.Waiters < 2 || c.Idle <= 0 {
		return errors.New("--gateways, --hand-offs and --idle must be positive, and --waiters at least 2")
	}
	return nil
}

// Run measures.
func (c *locksCmd) Run(ctx context.Context, to output) error {
	return measure(ctx, to, c.Servers, c.Pace, rig.Private{}, func(r *rig.Rig) error {
		wants := func(measure string) bool { return slices.Contains(c.Measure, measure) }
		if wants("wake-up") || wants("cycles") {
			services, err := c.services(ctx, r)
			if err != nil {
				return err
			}
			if wants("wake-up") {
				if err := wakeUps(ctx, r, services, c.HandOffs); err != nil {
					return err
				}
			}
			if wants("cycles") {
				if err := cycles(ctx, r, services); err != nil {
					return err
				}
			}
		}
		if wants("leases") {
			if err := leases(ctx, r, c.RedisFsync); err != nil {
				return err
			}
		}
		if !wants("crowd") {
			return nil
		}
		for round := range c.Rounds {
			if err := c.crowd(ctx, r, round+1); err != nil {
				return fmt.Errorf("crowd: %w", err)
			}
		}
		return nil
	}, c.goals)
}

func (c *locksCmd) goals(r rig.Report) (goals []rig.Goal) {
	for _, own := range []struct {
		clients int
		limit   float64
	}{{1, 1}, {8, 1}, {64, 1.7}} {
		goals = append(goals, rig.Goal{Name: fmt.Sprintf("a lock each, %d clients: fencegate / etcd", own.clients),
			Limit:  own.limit,
			Figure: r.Ratio("cycles", ownLocks+clientsName(own.clients), "fencegate", "etcd", rig.PerSecond)})
	}
	return append(goals, rig.Goal{Name: "one lock, 64 clients: cycles/s", Limit: 3000,
		Figure: r.Spread("cycles", oneLock+clientsName(64), "fencegate", rig.PerSecond)},
		rig.Goal{Name: "waiters of one lock: grants/s while they drain", Limit: 4000,
			Figure: r.Spread(c.crowdTable(), grantsPerSecond, "fencegate", crowdValue)})
}

// service is a lock service that is measured.
type service struct {
	name string
	// gateways is how many of them clients take turns between; 0 for others' services.
	gateways int
	// queues says that waiters are in a queue: its lockers are of type queue.
	queues  bool
	servers []int
	// connect makes the client of that number, from 0, with a connection of its own.
	connect func(ctx context.Context, client int) (locker, error)
}

// locker is one client of a service.
type locker interface {
	// hold waits until the lock is granted.
	hold(ctx context.Context, lock string) (held, error)
	close() error
}

// held is a lease that a client has. renew is nil where it is not measured.
type held struct {
	renew, release func(context.Context) error
}

// queue is a locker of a service with a queue of waiters.
type queue interface {
	locker
	// waiting is how many wait for a lock that is held.
	waiting(ctx context.Context, lock string) (int, error)
}

// connectAll makes clients, and the function that closes them all.
func (s service) connectAll(ctx context.Context, count int) (lockers []locker, closeAll func() error, err error) {
	closeAll = func() error {
		var closing errgroup.Group
		for _, l := range lockers {
			closing.Go(l.close)
		}
		return closing.Wait()
	}
	for client := range count {
		l, err := s.connect(ctx, client)
		if err != nil {
			return nil, nil, errors.Join(fmt.Errorf("%s: connect client %d: %w", s.name, client, err), closeAll())
		}
		lockers = append(lockers, l)
	}
	return lockers, closeAll, nil
}

// Whether every client has a lock of its own, or all have one.
const (
	ownLocks = "own locks, "
	oneLock  = "one lock, "
)

// cycles measures acquires and releases in turn, with each number of clients.
func cycles(ctx context.Context, r *rig.Rig, services []service) error {
	for _, which := range []string{ownLocks, oneLock} {
		for _, clients := range r.Clients {
			if which == oneLock && clients == 1 {
				continue // is the same as one client with a lock of its own
			}
			var targets []rig.Target
			for _, s := range services {
				if clients >= s.gateways {
					targets = append(targets, s.cycle(r.Prefix, which, "etcd"))
				}
			}
			if err := r.Compare(ctx, rig.Case{Table: "cycles", Name: which + clientsName(clients), Clients: clients},
				targets); err != nil {
				return err
			}
		}
	}
	return nil
}

// cycle is an acquire and a release.
func (s service) cycle(prefix, which, base string) rig.Target {
	return rig.Target{Name: s.name, Base: base, Servers: s.servers,
		Open: func(ctx context.Context, clients, _ int) (rig.Session, error) {
			lockers, closeAll, err := s.connectAll(ctx, clients)
			return rig.Session{Close: closeAll, Do: func(ctx context.Context, client, _ int) error {
				lease, err := lockers[client].hold(ctx, s.lock(prefix, which, client))
				if err != nil {
					return err
				}
				return lease.release(ctx)
			}}, err
		}}
}

// heartbeat is a renewal of a lease that the client holds.
func (s service) heartbeat(prefix, base string) rig.Target {
	return rig.Target{Name: s.name, Base: base, Servers: s.servers,
		Open: func(ctx context.Context, clients, _ int) (rig.Session, error) {
			lockers, closeAll, err := s.connectAll(ctx, clients)
			if err != nil {
				return rig.Session{}, err
			}
			var leases []held
			session := rig.Session{Close: func() (err error) {
				for _, lease := range leases {
					err = errors.Join(err, lease.release(ctx))
				}
				return errors.Join(err, closeAll())
			}, Do: func(ctx context.Context, client, _ int) error { return leases[client].renew(ctx) }}
			for client, l := range lockers {
				lease, err := l.hold(ctx, s.lock(prefix, ownLocks, client))
				if err != nil {
					return session, errors.Join(err, session.Close())
				}
				leases = append(leases, lease)
			}
			return session, nil
		}}
}

// lock is the name of a client's lock. It keeps the services apart: some of them share servers.
func (s service) lock(prefix, which string, client int) string {
	prefix += "/" + strings.ReplaceAll(s.name, " ", "-")
	if which == oneLock {
		return prefix + "/one"
	}
	return fmt.Sprintf("%s/own/%d", prefix, client)
}
