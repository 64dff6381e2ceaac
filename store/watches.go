package store

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

const (
	// eventsChannel is where fence.publish_event notifies of events.
	eventsChannel = "fence_events"
	// watchLasts is how long events are kept for a watch that nobody renews, and so how long one may be resumed without a gap.
	watchLasts   = time.Minute
	watchRenewal = 20 * time.Second
	fetchMax     = 5000
	fetchTimeout = 10 * time.Second
)

var errEventsLost = errors.New("events were lost while the database was away")

// watches are those of this process. One goroutine reads the events of all watched locks and hands them to whoever watches.
type watches struct {
	store  *Store
	config ServiceConfig
	due    chan struct{} // of capacity 1

	mu    sync.Mutex
	locks map[Name]*watched
}

// watched is a lock that somebody here watches.
type watched struct {
	last    int64 // the newest event that was handed out; -1: not known yet
	due     bool
	readers map[*Watch]struct{}
}

func newWatches(store *Store, config ServiceConfig) *watches {
	return &watches{store: store, config: config, due: make(chan struct{}, 1), locks: map[Name]*watched{}}
}

// begin has the events of these locks kept.
func (w *watches) begin(ctx context.Context, locks []Name) error {
	return w.store.exec(ctx, "select fence.begin_watch($1, $2)", locks, watchLasts.Milliseconds())
}

func (w *watches) add(watch *Watch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	lock := w.locks[watch.name]
	if lock == nil {
		lock = &watched{last: -1, readers: map[*Watch]struct{}{}}
		w.locks[watch.name] = lock
	}
	lock.readers[watch] = struct{}{}
}

// follow has events after the position handed out, unless they are already: it returns after which. That may be a later one, where
// another watch of the lock began at the same time.
func (w *watches) follow(name Name, position int64) int64 {
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
func (w *watches) remove(watch *Watch, reason error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.removeLocked(watch, reason)
}

func (w *watches) removeLocked(watch *Watch, reason error) {
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

// fetch has the events of a lock read soon.
func (w *watches) fetch(name Name) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if lock := w.locks[name]; lock != nil {
		w.fetchLocked(lock)
	}
}

func (w *watches) fetchAll() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, lock := range w.locks {
		w.fetchLocked(lock)
	}
}

func (w *watches) fetchLocked(lock *watched) {
	lock.due = true
	select {
	case w.due <- struct{}{}:
	default:
	}
}

// run reads events when there are some, looks for some now and then without a notification, and keeps the watches up, until ctx ends.
func (w *watches) run(ctx context.Context, onError func(error)) {
	poll, renewal := time.NewTicker(w.config.Poll), time.NewTicker(watchRenewal)
	defer poll.Stop()
	defer renewal.Stop()
	for {
		var err error
		select {
		case <-ctx.Done():
			return
		case <-w.due:
		case <-poll.C:
			w.fetchAll()
		case <-renewal.C:
			err = w.renew(ctx)
		}
		err = errors.Join(err, w.handOut(ctx))
		if err != nil && ctx.Err() == nil {
			onError(err)
			w.fetchAll()
			sleep(ctx, reconnectMin)
		}
	}
}

// renew keeps the events of all watched locks being kept. Where that had lapsed, events are lost, and those watches end.
func (w *watches) renew(ctx context.Context) error {
	w.mu.Lock()
	lasts := make(map[Name]int64, len(w.locks))
	names := make([]Name, 0, len(w.locks))
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
	const sql = "select w.lock, w.since from fence.watched w where w.lock = any ($1)"
	return w.store.query(ctx, sql, []any{names}, func(rows pgx.Rows) error {
		var name Name
		var since int64
		if err := rows.Scan(&name, &since); err != nil {
			return err
		}
		if last := lasts[name]; last >= 0 && since > last {
			w.endAll(name, &UnavailableError{OutcomeNotApplied, errEventsLost})
		}
		return nil
	})
}

func (w *watches) endAll(name Name, reason error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if lock := w.locks[name]; lock != nil {
		for watch := range lock.readers {
			w.removeLocked(watch, reason)
		}
	}
}

// handOut reads the events of the locks that are due, and gives them to their readers.
func (w *watches) handOut(ctx context.Context) error {
	for {
		names, lasts := w.takeDue()
		if len(names) == 0 {
			return nil
		}
		fetching, cancel := context.WithTimeout(ctx, fetchTimeout)
		events, err := w.store.events(fetching, names, lasts, fetchMax)
		cancel()
		if err != nil {
			return err
		}
		w.deliver(events)
		if len(events) == fetchMax {
			w.fetchAll()
		}
	}
}

func (w *watches) takeDue() (names []Name, lasts []int64) {
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
func (w *watches) deliver(events []Event) {
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
				w.removeLocked(watch, ErrSlowReader)
			}
		}
	}
}

// events reads the events of locks after the last one of each, in the order of their IDs.
func (s *Store) events(ctx context.Context, locks []Name, lasts []int64, limit int) ([]Event, error) {
	const sql = `select e.id, e.kind, e.lock, e.at, coalesce(e.owner_id, ''), coalesce(e.fencing_token, 0), coalesce(e.mode, ''), coalesce(e.scope, ''),
			e.expires_at, coalesce(e.reason, ''), coalesce(e.code, ''), coalesce(e.key, '')
		from unnest($1::text[], $2::bigint[]) as u (lock, last)
		cross join lateral (select * from fence.events e where e.lock = u.lock and e.id > u.last order by e.id limit $3) e
		order by e.id limit $3`
	var events []Event
	err := s.query(ctx, sql, []any{locks, lasts, limit}, func(rows pgx.Rows) error {
		var event Event
		var expiresAt pgtype.Timestamptz
		err := rows.Scan(&event.ID, &event.Kind, &event.Lock, &event.At, &event.OwnerID, &event.Token, &event.Mode, &event.Scope,
			&expiresAt, &event.Reason, &event.Verdict, &event.Key)
		event.ExpiresAt = expiresAt.Time
		events = append(events, event)
		return err
	})
	return events, err
}
