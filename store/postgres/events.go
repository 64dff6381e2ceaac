package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencegate/fencegate/store"
)

// KeepEvents has the events of these locks kept for the time, from now on. It returns ErrUnavailable.
func (s *Store) KeepEvents(ctx context.Context, locks []store.Name, lasting time.Duration) error {
	return s.exec(ctx, statement{}, "select fence.begin_watch($1, $2)", locks, lasting.Milliseconds())
}

// EventsKept calls kept for each of the locks whose events are kept: those after the ID since. It returns
// ErrUnavailable.
func (s *Store) EventsKept(ctx context.Context, locks []store.Name, kept func(lock store.Name, since int64)) error {
	const sql = "select w.lock, w.since from fence.watched w where w.lock = any ($1)"
	return s.query(ctx, sql, []any{locks}, func(rows pgx.Rows) error {
		var lock store.Name
		var since int64
		if err := rows.Scan(&lock, &since); err != nil {
			return err
		}
		kept(lock, since)
		return nil
	})
}

// WatchState reads the lock and its position among the events as they are at one moment: no grant, release or break is
// between them. Both statements are sent at once, so a gateway that is frozen keeps nothing locked.
func (s *Store) WatchState(ctx context.Context, name store.Name) (state store.WatchState, err error) {
	var since, newest pgtype.Int8
	var key *uuid.UUID
	err = s.send(ctx, onLock(forReads, name), func(conn *pgxpool.Conn, lockWait time.Duration) (bool, error) {
		batch := &pgx.Batch{}
		batch.Queue("select since, newest, key from fence.watch_state($1)", name)
		batch.Queue(oneLockSQL, oneLock(name))
		state.Lock = store.Lock{}
		return true, sendBatch(ctx, conn, lockWait, batch, func(results pgx.BatchResults) error {
			if err := results.QueryRow().Scan(&since, &newest, &key); err != nil {
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
		return store.WatchState{}, fmt.Errorf("watch %s: %w", name, err)
	}
	state.Since, state.Newest, state.Key = since.Int64, newest.Int64, key.String()
	if state.Lock.Lock == "" {
		state.Lock = store.Lock{Lock: name, State: store.LockFree}
	}
	return state, nil
}

// publishMax is how many events of a lock one statement publishes.
const publishMax = 5000

// PublishEvents gives the committed events of watched locks their IDs, so that they can be read. It returns the locks to
// publish again, since another process publishes their events now, or since there are very many. It returns
// ErrUnavailable.
func (s *Store) PublishEvents(ctx context.Context, locks []store.Name) (again []store.Name, err error) {
	err = s.queryRow(ctx, statement{}, "select fence.publish_events($1, $2)", []any{locks, publishMax}, &again)
	return again, err
}

// Events reads the events of locks after the last one of each, in the order of their IDs.
func (s *Store) Events(ctx context.Context, locks []store.Name, lasts []int64, limit int) ([]store.Event, error) {
	const sql = `select e.id, e.kind, e.lock, e.at, coalesce(e.owner_id, ''), coalesce(e.fencing_token, 0),
			coalesce(e.mode, ''), coalesce(e.scope, ''), e.expires_at, coalesce(e.reason, ''), coalesce(e.code, ''), coalesce(e.key, '')
		from unnest($1::text[], $2::bigint[]) as u (lock, last)
		cross join lateral (select * from fence.events e where e.lock = u.lock and e.id > u.last order by e.id limit $3) e
		order by e.id limit $3`
	args := []any{locks, lasts, limit}
	return collect(ctx, s.query, sql, args, func(row pgx.CollectableRow) (event store.Event, err error) {
		var expiresAt pgtype.Timestamptz
		err = row.Scan(&event.ID, &event.Kind, &event.Lock, &event.At, &event.OwnerID, &event.Token,
			&event.Mode, &event.Scope, &expiresAt, &event.Reason, &event.Verdict, &event.Key)
		event.ExpiresAt = expiresAt.Time
		return event, err
	})
}
