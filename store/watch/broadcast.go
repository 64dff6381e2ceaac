package watch

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/internal/timing"
)

const (
	// keptFor is how long the database notifies of a lock for a process that does not renew its watch, and how long
	// locks can't be read until the subscriptions end.
	keptFor     = time.Minute
	renewal     = 20 * time.Second
	callTimeout = 10 * time.Second
	// failurePause is the pause after locks could not be read.
	failurePause = 50 * time.Millisecond
)

// Database notifies of changes of watched locks, and shows locks; *postgres.Store is one.
type Database interface {
	BeginWatch(ctx context.Context, locks []store.Name, lasting time.Duration, begun func(lock store.Name, key string)) error
	WatchStates(ctx context.Context, locks []store.Name) ([]store.WatchState, error)
}

// Broadcast has the subscriptions of this process. Run reads the watched locks and delivers their states.
type Broadcast struct {
	db           Database
	pollInterval time.Duration
	due          chan struct{} // of capacity 1

	mu    sync.Mutex
	locks map[store.Name]*watchedLock
	keys  map[string]store.Name // by which the database notifies of locks
}

// watchedLock is a lock with subscriptions.
type watchedLock struct {
	key           string
	due           bool
	state         store.WatchState // as it was read last; Version 0: not yet
	subscriptions map[*Subscription]struct{}
}

// New returns a Broadcast. It waits to be Run. At each interval it looks for changes whose notification was lost.
func New(on Database, pollInterval time.Duration) *Broadcast {
	return &Broadcast{
		db: on, pollInterval: pollInterval, due: make(chan struct{}, 1), locks: map[store.Name]*watchedLock{},
		keys: map[string]store.Name{},
	}
}

// Run reads locks when they may have changed, polls all of them, and renews the watches in the database, until ctx ends.
// It passes errors to onError and tries again. Nothing else reads, so a later reading is never an older state.
func (b *Broadcast) Run(ctx context.Context, onError func(error)) {
	poll, renew := time.NewTicker(b.pollInterval), time.NewTicker(renewal)
	defer poll.Stop()
	defer renew.Stop()
	succeeded := time.Now()
	for {
		var err error
		select {
		case <-ctx.Done():
			return
		case <-b.due:
		case <-poll.C:
			b.FetchAll()
		case <-renew.C:
			err = b.keep(ctx, b.names())
		}
		err = errors.Join(err, b.readDue(ctx))
		switch {
		case err == nil:
			succeeded = time.Now()
		case ctx.Err() == nil:
			onError(err)
			if time.Since(succeeded) > keptFor {
				b.EndAll(err)
			}
			b.FetchAll()
			timing.Sleep(ctx, failurePause)
		}
	}
}

// Fetch makes Run read the lock with this key.
func (b *Broadcast) Fetch(key string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fetch(b.keys[key])
}

// FetchAll makes Run read all watched locks.
func (b *Broadcast) FetchAll() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for name := range b.locks {
		b.fetch(name)
	}
}

func (b *Broadcast) fetch(name store.Name) {
	lock := b.locks[name]
	if lock == nil {
		return
	}
	lock.due = true
	select {
	case b.due <- struct{}{}:
	default:
	}
}

func (b *Broadcast) add(s *Subscription) {
	b.mu.Lock()
	defer b.mu.Unlock()
	lock := b.locks[s.name]
	if lock == nil {
		lock = &watchedLock{subscriptions: map[*Subscription]struct{}{}}
		b.locks[s.name] = lock
	}
	lock.subscriptions[s] = struct{}{}
}

// end ends a subscription for the reason, unless it has ended. The caller has locked the Broadcast.
func (b *Broadcast) end(s *Subscription, reason error) {
	lock := b.locks[s.name]
	if lock == nil {
		return
	}
	if _, there := lock.subscriptions[s]; !there {
		return
	}
	delete(lock.subscriptions, s)
	s.reason = reason
	close(s.states)
	if len(lock.subscriptions) == 0 {
		delete(b.locks, s.name)
		delete(b.keys, lock.key)
	}
}

// EndAll ends all subscriptions for the reason.
func (b *Broadcast) EndAll(reason error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, lock := range b.locks {
		for s := range lock.subscriptions {
			b.end(s, reason)
		}
	}
}

func (b *Broadcast) names() (names []store.Name) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for name := range b.locks {
		names = append(names, name)
	}
	return names
}

// keep has the database notify of changes of the locks from now on. A lock whose key is new may have changed unnoticed,
// so it is read.
func (b *Broadcast) keep(ctx context.Context, names []store.Name) error {
	if len(names) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return b.db.BeginWatch(ctx, names, keptFor, func(name store.Name, key string) {
		b.mu.Lock()
		defer b.mu.Unlock()
		if lock := b.locks[name]; lock != nil && lock.key != key {
			delete(b.keys, lock.key)
			lock.key, b.keys[key] = key, name
			b.fetch(name)
		}
	})
}

// readDue reads the locks that are due, and delivers what has changed.
func (b *Broadcast) readDue(ctx context.Context) error {
	names := b.takeDue()
	if len(names) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	states, err := b.db.WatchStates(ctx, names)
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, state := range states {
		b.deliver(state)
	}
	return err
}

// takeDue returns the locks that are due. Subscriptions that begin from now on wait for the next reading: a reader may
// know a newer state than this one already, from another gateway.
func (b *Broadcast) takeDue() (names []store.Name) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for name, lock := range b.locks {
		if lock.due {
			lock.due = false
			names = append(names, name)
			for s := range lock.subscriptions {
				s.reading = true
			}
		}
	}
	return names
}

// deliver hands a state to the subscriptions of its lock that don't have it. It never blocks: the state replaces one
// that was not read yet. The caller has locked the Broadcast.
func (b *Broadcast) deliver(state store.WatchState) {
	lock := b.locks[state.Lock.Lock]
	if lock == nil {
		return
	}
	state.Version = max(state.Version, lock.state.Version+1) // the clock may have been set back
	changed := differs(lock.state.Lock, state.Lock)
	lock.state = state
	for s := range lock.subscriptions {
		if !s.reading || s.begun && !changed {
			continue
		}
		s.begun = true
		select {
		case <-s.states:
		default:
		}
		s.states <- state
	}
}

// differs reports whether one state of a lock is another one. What may differ without that are the ends of leases, which
// a renewal changes.
func differs(before, now store.Lock) bool {
	return before.State != now.State || before.Token != now.Token || before.QueueLength != now.QueueLength ||
		!slices.EqualFunc(before.Holders, now.Holders, func(a, b store.Lease) bool { return a.Token == b.Token })
}

// Subscription is a stream of the states of one lock. One goroutine uses it.
type Subscription struct {
	broadcast *Broadcast
	name      store.Name
	states    chan store.WatchState // of capacity 1; closed when the subscription has ended, see reason
	reason    error

	reading bool // a reading has begun since Subscribe
	begun   bool // it was handed a state
}

// Subscribe begins a subscription to the states of a lock. It returns ErrUnavailable.
func (b *Broadcast) Subscribe(ctx context.Context, lock store.Name) (*Subscription, error) {
	s := &Subscription{broadcast: b, name: lock, states: make(chan store.WatchState, 1)}
	b.add(s)
	if err := b.keep(ctx, []store.Name{lock}); err != nil {
		s.Close()
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fetch(lock)
	return s, nil
}

// Next returns the state of the lock, and then waits for another one. It returns ErrUnavailable when the lock could not
// be read for a minute; then the subscription has ended. It returns the cause of ctx when that ends.
func (s *Subscription) Next(ctx context.Context) (store.WatchState, error) {
	select {
	case state, ok := <-s.states:
		if !ok {
			return state, s.reason
		}
		return state, nil
	case <-ctx.Done():
		return store.WatchState{}, context.Cause(ctx)
	}
}

// Close ends the subscription.
func (s *Subscription) Close() {
	s.broadcast.mu.Lock()
	defer s.broadcast.mu.Unlock()
	s.broadcast.end(s, context.Canceled)
}
