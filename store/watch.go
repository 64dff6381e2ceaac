package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	// watchBuffer is how many events of a watch may be unread before it is ended.
	watchBuffer = 256
	// resumeMax is how many events a watch may lie behind and still be resumed.
	resumeMax = 1000
)

// Watch is a stream of the events of one lock. It is used by one goroutine.
type Watch struct {
	// Resumed says that the events follow those that were seen before. Otherwise the watch begins with the lock as it stands.
	Resumed bool
	// Missed says that events after those that were seen before are lost.
	Missed bool
	// Lock is how the lock stands after the event with the ID; zero where Resumed. One that was never granted is free, with token 0.
	Lock Lock
	ID   int64

	watches *watches
	name    Name
	behind  []Event    // to be read before those that come
	coming  chan Event // closed when the watch was ended, see reason
	reason  error
}

// Watch begins a watch of a lock; after is the ID of the last event that was seen of it, nil: none. It returns ErrUnavailable.
func (s *Service) Watch(ctx context.Context, lock Name, after *int64) (*Watch, error) {
	w := &Watch{watches: s.watches, name: lock, coming: make(chan Event, watchBuffer)}
	if err := s.watches.begin(ctx, []Name{lock}); err != nil {
		return nil, err
	}
	s.watches.add(w)
	since, newest, state, err := s.watchState(ctx, lock)
	if err != nil {
		w.Close()
		return nil, err
	}
	followed := s.watches.follow(lock, newest)
	if after != nil && *after >= since && *after <= newest {
		w.ID = *after
		w.behind, err = s.events(ctx, []Name{lock}, []int64{w.ID}, resumeMax+1)
		w.Resumed = len(w.behind) <= resumeMax
	}
	if !w.Resumed {
		w.Missed, w.Lock, w.ID, w.behind = after != nil, state, newest, nil
		if followed > newest && err == nil {
			w.behind, err = s.events(ctx, []Name{lock}, []int64{newest}, fetchMax)
		}
	}
	if err != nil {
		w.Close()
		return nil, err
	}
	return w, nil
}

// watchState reads the lock and its position among the events as they are at one moment: no grant, release or break is between them.
func (s *Store) watchState(ctx context.Context, name Name) (since, newest int64, lock Lock, err error) {
	err = s.readLocked(ctx, onLock(useReads, name), func(tx pgx.Tx) error {
		var sinceOrNull, newestOrNull pgtype.Int8
		if err := tx.QueryRow(ctx, "select since, newest from fence.watch_state($1)", name).Scan(&sinceOrNull, &newestOrNull); err != nil {
			return err
		}
		if !sinceOrNull.Valid {
			return errors.New("the watch lapsed before it began")
		}
		since, newest = sinceOrNull.Int64, newestOrNull.Int64
		locks, err := readLocks(ctx, queryIn(tx), oneLockSQL, oneLock(name))
		if err == nil && len(locks) > 0 {
			lock = locks[0]
		}
		return err
	})
	if err != nil {
		return 0, 0, Lock{}, fmt.Errorf("watch %s: %w", name, err)
	}
	if lock.Lock == "" {
		lock = Lock{Lock: name, State: LockFree}
	}
	return since, newest, lock, nil
}

// readLocked runs read in a transaction that is always rolled back: it only locks. The fence of a name that was never used is made so that
// it can be locked, and is gone again.
func (s *Store) readLocked(ctx context.Context, j job, read func(pgx.Tx) error) error {
	return s.send(ctx, j, func(conn *pgxpool.Conn) (bool, error) {
		tx, err := conn.Begin(ctx)
		if err != nil {
			return true, err
		}
		err = read(tx)
		return true, errors.Join(err, tx.Rollback(context.WithoutCancel(ctx)))
	})
}

// queryIn is Store.query in a transaction.
func queryIn(tx pgx.Tx) queryFunc {
	return func(ctx context.Context, sql string, args []any, scan func(pgx.Rows) error) error {
		rows, err := tx.Query(ctx, sql, args...)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			if err := scan(rows); err != nil {
				return err
			}
		}
		return rows.Err()
	}
}

// Next waits for the next event. It returns ErrSlowReader when more than 256 events were not read in time, and ErrUnavailable when events were
// lost while the database was away: in both cases the watch has ended, and another one can be begun after the last ID. It returns
// the cause of ctx when that ends.
func (w *Watch) Next(ctx context.Context) (Event, error) {
	for len(w.behind) > 0 {
		event := w.behind[0]
		w.behind = w.behind[1:]
		w.ID = event.ID
		return event, nil
	}
	for {
		select {
		case event, ok := <-w.coming:
			if !ok {
				return Event{}, w.reason
			}
			if event.ID > w.ID {
				w.ID = event.ID
				return event, nil
			}
		case <-ctx.Done():
			return Event{}, context.Cause(ctx)
		}
	}
}

// Close ends the watch.
func (w *Watch) Close() { w.watches.remove(w, ErrSlowReader) }
