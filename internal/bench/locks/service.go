package locks

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"

	"github.com/fencegate/fencegate/internal/bench/peers"
)

// service is a lock service under measurement.
type service struct {
	name string
	// peer is the process of another lock service; nil for fencegate.
	peer *peers.Peer
	// gateways is how many of them clients take turns between; 1 for others' services.
	gateways int
	// queues says that waiters are in a queue: its lockers are of type queue.
	queues bool
	// connect makes the client of that number, from 0, with a connection of its own.
	connect func(ctx context.Context, client int) (locker, error)
}

// locker is one client of a service.
type locker interface {
	// acquire waits until the lock is granted, and returns what gives it back.
	acquire(ctx context.Context, lock string) (release func(context.Context) error, err error)
	close() error
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

// because prefers what ended the context, which made all else fail.
func because(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); err != nil && cause != nil {
		return cause
	}
	return err
}
