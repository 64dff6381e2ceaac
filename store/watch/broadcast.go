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
	// watchLasts is how long events are kept for a watch that nobody renews, and so how long one may be resumed without a gap.
	watchLasts   = time.Minute
	watchRenewal = 20 * time.Second
	fetchMax     = 5000
	fetchTimeout = 10 * time.Second
	// failurePause is the pause after events could not be read.
	failurePause = 50 * time.Millisecond
)

var errEventsLost = errors.New("events were lost while the database was away")

// Broadcast is the watches of this process. One goroutine reads the events of all watched locks and hands them to whoever watches.
type Broadcast struct {
	store *store.Store
	poll  time.Duration
	due   chan struct{} // of capacity 1

	mu    sync.Mutex
	locks map[store.Name]*watched
}

// watched is a lock that somebody here watches.
type watched struct {
	last    int64 // the newest event that was handed out; -1: not known yet
	due     bool
	readers map[*Subscription]struct{}
}

// New returns a Broadcast that waits to be Run. It looks for events without a notification at each poll.
func New(on *store.Store, poll time.Duration) *Broadcast {
	return &Broadcast{store: on, poll: poll, due: make(chan struct{}, 1), locks: map[store.Name]*watched{}}
}

// begin has the events of these locks kept.
func (w *Broadcast) begin(ctx context.Context, locks []store.Name) error {
	return w.store.KeepEvents(ctx, locks, watchLasts)
}

func (w *Broadcast) add(watch *Subscription) {
	w.mu.Lock()
	defer w.mu.Unlock()
	lock := w.locks[watch.name]
	if lock == nil {
		lock = &watched{last: -1, readers: map[*Subscription]struct{}{}}
		w.locks[watch.name] = lock
	}
	lock.readers[watch] = struct{}{}
}

// follow has events after the position handed out, unless they are already: it returns after which. That may be a later one, where
// another watch of the lock began at the same time.
func (w *Broadcast) follow(name store.Name, position int64) int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	lock := w.locks[name]
	if lock == nil {
		return position
	}
	if lock.last < 0 {
		lock.last = position
		w.fetchLocked(lock)
	}
	return lock.last
}

// remove ends a watch for the reason, unless it has ended.
func (w *Broadcast) remove(watch *Subscription, reason error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.removeLocked(watch, reason)
}

func (w *Broadcast) removeLocked(watch *Subscription, reason error) {
	lock := w.locks[watch.name]
	if lock == nil {
		return
	}
	if _, there := lock.readers[watch]; !there {
		return
	}
	delete(lock.readers, watch)
	watch.reason = reason
	close(watch.coming)
	if len(lock.readers) == 0 {
		delete(w.locks, watch.name)
	}
}

// Fetch has the events of a lock read soon.
func (w *Broadcast) Fetch(name store.Name) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if lock := w.locks[name]; lock != nil {
		w.fetchLocked(lock)
	}
}

// FetchAll has the events of all watched locks read soon.
func (w *Broadcast) FetchAll() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, lock := range w.locks {
		w.fetchLocked(lock)
	}
}

func (w *Broadcast) fetchLocked(lock *watched) {
	lock.due = true
	select {
	case w.due <- struct{}{}:
	default:
	}
}

// Run reads events when there are some, looks for some now and then without a notification, and keeps the watches up, until ctx ends.
func (w *Broadcast) Run(ctx context.Context, onError func(error)) {
	poll, renewal := time.NewTicker(w.poll), time.NewTicker(watchRenewal)
	defer poll.Stop()
	defer renewal.Stop()
	for {
		var err error
		select {
		case <-ctx.Done():
			return
		case <-w.due:
		case <-poll.C:
			w.FetchAll()
		case <-renewal.C:
			err = w.renew(ctx)
		}
		err = errors.Join(err, w.handOut(ctx))
		if err != nil && ctx.Err() == nil {
			onError(err)
			w.FetchAll()
			timing.Sleep(ctx, failurePause)
		}
	}
}

// renew keeps the events of all watched locks being kept. Where that had lapsed, events are lost, and those watches end.
func (w *Broadcast) renew(ctx context.Context) error {
	w.mu.Lock()
	lasts := make(map[store.Name]int64, len(w.locks))
	names := make([]store.Name, 0, len(w.locks))
	for name, lock := range w.locks {
		lasts[name] = lock.last
		names = append(names, name)
	}
	w.mu.Unlock()
	if len(names) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	if err := w.begin(ctx, names); err != nil {
		return err
	}
	return w.store.EventsKept(ctx, names, func(name store.Name, since int64) {
		if last := lasts[name]; last >= 0 && since > last {
			w.endAll(name, store.NotApplied(errEventsLost))
		}
	})
}

func (w *Broadcast) endAll(name store.Name, reason error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if lock := w.locks[name]; lock != nil {
		for watch := range lock.readers {
			w.removeLocked(watch, reason)
		}
	}
}

// handOut reads the events of the locks that are due, and gives them to their readers.
func (w *Broadcast) handOut(ctx context.Context) error {
	for {
		names, lasts := w.takeDue()
		if len(names) == 0 {
			return nil
		}
		fetching, cancel := context.WithTimeout(ctx, fetchTimeout)
		events, err := w.store.Events(fetching, names, lasts, fetchMax)
		cancel()
		if err != nil {
			return err
		}
		w.deliver(events)
		if len(events) == fetchMax {
			w.FetchAll()
		}
	}
}

func (w *Broadcast) takeDue() (names []store.Name, lasts []int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for name, lock := range w.locks {
		if lock.due && lock.last >= 0 {
			lock.due = false
			names = append(names, name)
			lasts = append(lasts, lock.last)
		}
	}
	return names, lasts
}

// deliver never waits for a reader: one that does not keep up is dropped.
func (w *Broadcast) deliver(events []store.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, event := range events {
		lock := w.locks[event.Lock]
		if lock == nil || event.ID <= lock.last {
			continue
		}
		lock.last = event.ID
		for watch := range lock.readers {
			select {
			case watch.coming <- event:
			default:
				w.removeLocked(watch, store.ErrSlowReader)
			}
		}
	}
}
