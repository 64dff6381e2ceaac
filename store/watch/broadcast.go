package watch

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/internal/timing"
)

const (
	// keptFor is how long the database keeps events for a process that does not renew its watch, and so how long a
	// subscription may be resumed without a gap.
	keptFor      = time.Minute
	renewal      = 20 * time.Second
	fetchMax     = 5000
	fetchTimeout = 10 * time.Second
	// failurePause is the pause after events could not be read.
	failurePause = 50 * time.Millisecond
	// publishPause is the pause before the events of a lock are looked for again that another process is publishing; it
	// doubles up to publishPauseMax.
	publishPause    = time.Millisecond
	publishPauseMax = 100 * time.Millisecond
)

var errEventsLost = errors.New("events were lost while the database was away")

// Database keeps events and publishes them; *postgres.Store is one.
type Database interface {
	KeepEvents(ctx context.Context, locks []store.Name, lasting time.Duration) error
	EventsKept(ctx context.Context, locks []store.Name, kept func(lock store.Name, since int64)) error
	WatchState(ctx context.Context, lock store.Name) (store.WatchState, error)
	PublishEvents(ctx context.Context, locks []store.Name) (again []store.Name, err error)
	Events(ctx context.Context, locks []store.Name, lasts []int64, limit int) ([]store.Event, error)
}

// Broadcast has the subscriptions of this process. Run reads the events of all watched locks and delivers them.
type Broadcast struct {
	db           Database
	pollInterval time.Duration
	due          chan struct{} // of capacity 1

	mu    sync.Mutex
	locks map[store.Name]*watchedLock
	keys  map[string]store.Name // by WatchState.Key, those of locks
}

// watchedLock is a lock with subscriptions.
type watchedLock struct {
	last          int64 // the newest event that was delivered; -1: not known yet
	key           string
	due           bool
	subscriptions map[*Subscription]struct{}
}

// New returns a Broadcast. It waits to be Run. At each interval it looks for events whose notification was lost.
func New(on Database, pollInterval time.Duration) *Broadcast {
	return &Broadcast{
		db: on, pollInterval: pollInterval, due: make(chan struct{}, 1), locks: map[store.Name]*watchedLock{},
		keys: map[string]store.Name{},
	}
}

// Run publishes and reads events when there may be some, polls for others, and renews the watches in the database, until
// ctx ends. It passes errors to onError and tries again.
func (b *Broadcast) Run(ctx context.Context, onError func(error)) {
	poll, renew := time.NewTicker(b.pollInterval), time.NewTicker(renewal)
	again, pause := time.NewTimer(publishPauseMax), publishPause
	defer poll.Stop()
	defer renew.Stop()
	defer again.Stop()
	for {
		var err error
		select {
		case <-ctx.Done():
			return
		case <-b.due:
		case <-again.C:
		case <-poll.C:
			b.FetchAll()
		case <-renew.C:
			err = b.renew(ctx)
		}
		busy, failed := b.publishDue(ctx)
		if len(busy) > 0 {
			b.setDue(busy)
			again.Reset(pause)
			pause = min(2*pause, publishPauseMax)
		} else {
			pause = publishPause
		}
		err = errors.Join(err, failed)
		if err != nil && ctx.Err() == nil {
			onError(err)
			b.FetchAll()
			timing.Sleep(ctx, failurePause)
		}
	}
}

// Fetch makes Run read the events of the lock with this key.
func (b *Broadcast) Fetch(key string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if lock := b.locks[b.keys[key]]; lock != nil {
		b.fetch(lock)
	}
}

// FetchAll makes Run read the events of all watched locks.
func (b *Broadcast) FetchAll() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, lock := range b.locks {
		b.fetch(lock)
	}
}

func (b *Broadcast) fetch(lock *watchedLock) {
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
		lock = &watchedLock{last: -1, subscriptions: map[*Subscription]struct{}{}}
		b.locks[s.name] = lock
	}
	lock.subscriptions[s] = struct{}{}
}

// follow begins to deliver events after the position, and returns that. It returns a later one if another subscription
// to the lock began at the same time.
func (b *Broadcast) follow(name store.Name, state store.WatchState) int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	lock := b.locks[name]
	if lock == nil {
		return state.Newest
	}
	if lock.last < 0 {
		lock.last = state.Newest
	}
	if lock.key != state.Key {
		delete(b.keys, lock.key)
		lock.key, b.keys[state.Key] = state.Key, name
		b.fetch(lock)
	}
	return lock.last
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
	close(s.events)
	if len(lock.subscriptions) == 0 {
		delete(b.locks, s.name)
		delete(b.keys, lock.key)
	}
}

// renew makes the database go on keeping the events of all watched locks. Where it had stopped, events are lost, and
// those subscriptions end.
func (b *Broadcast) renew(ctx context.Context) error {
	b.mu.Lock()
	lasts := make(map[store.Name]int64, len(b.locks))
	names := make([]store.Name, 0, len(b.locks))
	for name, lock := range b.locks {
		lasts[name] = lock.last
		names = append(names, name)
	}
	b.mu.Unlock()
	if len(names) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	if err := b.db.KeepEvents(ctx, names, keptFor); err != nil {
		return err
	}
	return b.db.EventsKept(ctx, names, func(name store.Name, since int64) {
		if last := lasts[name]; last >= 0 && since > last {
			b.endAll(name, store.NotApplied(errEventsLost))
		}
	})
}

func (b *Broadcast) endAll(name store.Name, reason error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if lock := b.locks[name]; lock != nil {
		for s := range lock.subscriptions {
			b.end(s, reason)
		}
	}
}

// publishDue publishes the events of the locks that are due, reads them, and delivers them. It returns the locks whose
// events another process is publishing.
func (b *Broadcast) publishDue(ctx context.Context) (busy []store.Name, err error) {
	for {
		names, lasts := b.takeDue()
		if len(names) == 0 {
			return busy, nil
		}
		fetching, cancel := context.WithTimeout(ctx, fetchTimeout)
		again, err := b.db.PublishEvents(fetching, names)
		var events []store.Event
		if err == nil {
			events, err = b.db.Events(fetching, names, lasts, fetchMax)
		}
		cancel()
		if err != nil {
			return busy, err
		}
		busy = append(busy, again...)
		b.deliver(events)
		if len(events) == fetchMax {
			b.FetchAll()
		}
	}
}

// setDue makes Run look for events of these locks when it looks for others.
func (b *Broadcast) setDue(names []store.Name) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, name := range names {
		if lock := b.locks[name]; lock != nil {
			lock.due = true
		}
	}
}

func (b *Broadcast) takeDue() (names []store.Name, lasts []int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for name, lock := range b.locks {
		if lock.due && lock.last >= 0 {
			lock.due = false
			names = append(names, name)
			lasts = append(lasts, lock.last)
		}
	}
	return names, lasts
}

// deliver hands events to the subscriptions of their locks. It never blocks: it ends a subscription that is too
// slow.
func (b *Broadcast) deliver(events []store.Event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, event := range events {
		lock := b.locks[event.Lock]
		if lock == nil || event.ID <= lock.last {
			continue
		}
		lock.last = event.ID
		for s := range lock.subscriptions {
			select {
			case s.events <- &event:
			default:
				b.end(s, store.ErrSlowReader)
			}
		}
	}
}
