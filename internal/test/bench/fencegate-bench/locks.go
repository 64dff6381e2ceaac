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

	"github.com/fencegate/fencegate/internal/test/bench/rig"
)

type locksCmd struct {
	rig.Servers
	rig.Pace `set:"clients=1,8,64" set:"rounds=3" set:"duration=2s" set:"warmup=500ms"` //nolint:staticcheck // kong takes several "set"

	Measure    []string      `help:"What to measure: ${enum}." enum:"wake-up,cycles,leases,crowd" default:"wake-up,cycles,leases,crowd"`
	HandOffs   int           `help:"Wake-up: how many hand-offs of a lock are measured in a round." default:"500"`
	Gateways   []int         `help:"Wake-up, cycles: numbers of gateways to measure with." default:"1,2"`
	RedisFsync bool          `name:"redis-fsync" help:"Leases: Redis flushes each change before it answers (appendfsync always). Default: it keeps nothing on disk."`
	Waiters    int           `help:"Crowd: how many wait for one lock." default:"10000"`
	Idle       time.Duration `help:"Crowd: how long the load is observed while nothing happens." default:"10s"`
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
		var services []service
		for _, measure := range c.Measure {
			var err error
			if services == nil && (measure == "wake-up" || measure == "cycles") {
				if services, err = c.services(ctx, r); err != nil {
					return err
				}
			}
			switch measure {
			case "wake-up":
				err = wakeUps(ctx, r, services, c.HandOffs)
			case "cycles":
				err = cycles(ctx, r, services)
			case "leases":
				err = leases(ctx, r, c.RedisFsync)
			case "crowd":
				for round := 1; err == nil && round <= c.Rounds; round++ {
					err = c.crowd(ctx, r, round)
				}
			}
			if err != nil {
				return fmt.Errorf("%s: %w", measure, err)
			}
		}
		return nil
	}, c.goals)
}

func (c *locksCmd) goals(r rig.Report) (goals []rig.Goal) {
	for clients, limit := range map[int]float64{1: 1, 8: 1, 64: 1.7} {
		goals = append(goals, rig.Goal{Name: fmt.Sprintf("a lock each, %d clients: fencegate / etcd", clients), Limit: limit,
			Figure: r.Ratio("cycles", ownLocks+clientsName(clients), "fencegate", "etcd", rig.PerSecond)})
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
	// queues says that its lockers tell how many wait.
	queues  bool
	servers []int
	address string // of a peer
	// connect makes the client of that number, from 0, with a connection of its own.
	connect func(ctx context.Context, client int) (locker, error)
}

// locker is one client of a service.
type locker struct {
	// hold waits until the lock is granted.
	hold func(ctx context.Context, lock string) (held, error)
	// waiting is how many wait for a lock that is held; nil: the service has no queue.
	waiting func(ctx context.Context, lock string) (int, error)
	// close ends the connection; nil: it has none of its own.
	close func() error
}

// held is a lease that a client has. renew is nil where it is not measured.
type held struct {
	renew, release func(context.Context) error
}

// connectAll makes clients, and the function that closes them all.
func (s service) connectAll(ctx context.Context, count int) (lockers []locker, closeAll func() error, err error) {
	closeAll = func() error {
		var closing errgroup.Group
		for _, l := range lockers {
			if l.close != nil {
				closing.Go(l.close)
			}
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
			c := rig.Case{Table: "cycles", Name: which + clientsName(clients), Clients: clients}
			if err := r.Compare(ctx, c, targets); err != nil {
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
