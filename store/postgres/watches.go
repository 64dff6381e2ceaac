package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/fencegate/fencegate/store"
)

// BeginWatch has the database notify of changes of these locks for the time, from now on, and calls begun with the key
// that stands for each of them on store.ChangesChannel. It returns ErrUnavailable.
func (s *Store) BeginWatch(
	ctx context.Context, locks []store.Name, lasting time.Duration, begun func(lock store.Name, key string),
) error {
	const sql = "select lock, key from fence.begin_watch($1, $2)"
	return s.query(ctx, sql, []any{locks, lasting.Milliseconds()}, func(rows pgx.Rows) error {
		var lock store.Name
		var key uuid.UUID
		if err := rows.Scan(&lock, &key); err != nil {
			return err
		}
		begun(lock, key.String())
		return nil
	})
}

// watchedSQL shows every lock that is asked for. The sort key is the start of the transaction, which comes before the
// snapshot.
var watchedSQL = fmt.Sprintf(showSQL,
	"select n.name as resource, coalesce(f.granted_token, 0) as granted_token, coalesce(f.open, false) as open, "+
		"0 as sorted from unnest(@locks::text[]) n (name) left join fence.fences f on f.resource = n.name",
	"(extract(epoch from now()) * 1000000)::bigint", shownColumns, "", "")

// WatchStates reads locks as they are at one moment, without their queues. The version of the states is the time of the
// database, from before that moment. It returns ErrUnavailable.
func (s *Store) WatchStates(ctx context.Context, locks []store.Name) ([]store.WatchState, error) {
	shown, err := readLocks(ctx, s.query, watchedSQL, pgx.NamedArgs{"locks": locks, "queue_max": 0})
	states := make([]store.WatchState, len(shown))
	for i, lock := range shown {
		states[i] = store.WatchState{Lock: lock, Version: lock.SortKey}
	}
	return states, err
}
