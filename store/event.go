package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"
)

// EventsChannel is where fence.publish_event notifies of events; the payload is the lock.
const EventsChannel = "fence_events"

// EventKind is what happened to a lock.
type EventKind string

// The kinds of events.
const (
	EventGranted  EventKind = "granted"
	EventRenewed  EventKind = "renewed"
	EventReleased EventKind = "released"
	EventExpired  EventKind = "expired"
	EventBroken   EventKind = "broken"
	EventQueued   EventKind = "queued"
	EventRejected EventKind = "rejected" // a write
)

// Event is something that happened to a lock. Events of one lock are in the order of their IDs. What does not belong to
// its kind is zero.
type Event struct {
	ID      int64
	Kind    EventKind
	Lock    Name
	At      time.Time // by the database's clock
	OwnerID string
	Token   int64
	Mode    Mode
	Scope   Scope
	// ExpiresAt is of granted and renewed; of a lease in a session it is zero.
	ExpiresAt time.Time
	Reason    string  // of a break, or of a rejection
	Verdict   Verdict // of a rejection
	Key       Name    // of a rejection
}

// KeepEvents has the events of these locks kept for the time, from now on. It returns ErrUnavailable.
func (s *Store) KeepEvents(ctx context.Context, locks []Name, lasting time.Duration) error {
	return s.exec(ctx, statement{}, "select fence.begin_watch($1, $2)", locks, lasting.Milliseconds())
}

// EventsKept calls kept for each of the locks whose events are kept: those after the ID since. It returns
// ErrUnavailable.
func (s *Store) EventsKept(ctx context.Context, locks []Name, kept func(lock Name, since int64)) error {
	const sql = "select w.lock, w.since from fence.watched w where w.lock = any ($1)"
	return s.query(ctx, sql, []any{locks}, func(rows pgx.Rows) error {
		var lock Name
		var since int64
		if err := rows.Scan(&lock, &since); err != nil {
			return err
		}
		kept(lock, since)
		return nil
	})
}

// WatchState is a lock and its position among its events.
type WatchState struct {
	Since  int64 // the events after this ID are kept
	Newest int64 // the ID of the newest event
	Lock   Lock  // after that event; one that was never granted is free, with token 0
}

// WatchState reads the lock and its position among the events as they are at one moment: no grant, release or break is
// between them. Both statements are sent at once, so a gateway that is frozen keeps nothing locked.
func (s *Store) WatchState(ctx context.Context, name Name) (state WatchState, err error) {
	var since, newest pgtype.Int8
	err = s.send(ctx, onLock(forReads, name), func(conn *pgxpool.Conn, lockWait time.Duration) (bool, error) {
		batch := &pgx.Batch{}
		batch.Queue("select since, newest from fence.watch_state($1)", name)
		batch.Queue(oneLockSQL, oneLock(name))
		state.Lock = Lock{}
		return true, sendBatch(ctx, conn, lockWait, batch, func(results pgx.BatchResults) error {
			if err := results.QueryRow().Scan(&since, &newest); err != nil {
				return err
			}
			locks, err := readLocks(ctx, inBatch(results), oneLockSQL)
			if len(locks) > 0 {
				state.Lock = locks[0]
			}
			return err
		})
	})
	if err == nil && !since.Valid {
		err = errors.New("the watch lapsed before it began")
	}
	if err != nil {
		return WatchState{}, fmt.Errorf("watch %s: %w", name, err)
	}
	state.Since, state.Newest = since.Int64, newest.Int64
	if state.Lock.Lock == "" {
		state.Lock = Lock{Lock: name, State: LockFree}
	}
	return state, nil
}

// publishMax is how many events of a lock one statement publishes.
const publishMax = 5000

// PublishEvents gives the committed events of watched locks their IDs, so that they can be read. It returns the locks to
// publish again, since another process publishes their events now, or since there are very many. It returns
// ErrUnavailable.
func (s *Store) PublishEvents(ctx context.Context, locks []Name) (again []Name, err error) {
	err = s.queryRow(ctx, statement{}, "select fence.publish_events($1, $2)", []any{locks, publishMax}, &again)
	return again, err
}

// Events reads the events of locks after the last one of each, in the order of their IDs.
func (s *Store) Events(ctx context.Context, locks []Name, lasts []int64, limit int) ([]Event, error) {
	const sql = `select e.id, e.kind, e.lock, e.at, coalesce(e.owner_id, ''), coalesce(e.fencing_token, 0),
			coalesce(e.mode, ''), coalesce(e.scope, ''), e.expires_at, coalesce(e.reason, ''), coalesce(e.code, ''), coalesce(e.key, '')
		from unnest($1::text[], $2::bigint[]) as u (lock, last)
		cross join lateral (select * from fence.events e where e.lock = u.lock and e.id > u.last order by e.id limit $3) e
		order by e.id limit $3`
	return collect(ctx, s.query, sql, []any{locks, lasts, limit}, func(row pgx.CollectableRow) (event Event, err error) {
		var expiresAt pgtype.Timestamptz
		err = row.Scan(&event.ID, &event.Kind, &event.Lock, &event.At, &event.OwnerID, &event.Token,
			&event.Mode, &event.Scope, &expiresAt, &event.Reason, &event.Verdict, &event.Key)
		event.ExpiresAt = expiresAt.Time
		return event, err
	})
}
