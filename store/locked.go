package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// lockedTimeout bounds the look for the session that holds a lock.
const lockedTimeout = 500 * time.Millisecond

// lockedBySQL finds the sessions that have locked the fences of some names, or hold the gates (advisory locks 1718511205)
// of the names and of those above them. A row lock is found by the transaction that it is written with, so one that
// several transactions share is not found.
const lockedBySQL = `
	with names (name, own) as (
		select n, true from unnest($1::text[]) n
		union select a, false from unnest($1::text[]) n, unnest(fence.ancestors(n)) a
	), found (what, pid) as (
		select 'the fence of ' || f.resource, l.pid
		from fence.fences f join pg_locks l on l.locktype = 'transactionid' and l.transactionid = f.xmax and l.granted
		where f.resource = any ($1)
		union
		select format('the advisory lock (%s, %s)', l.classid, hashtext(n.name)), l.pid
		from names n join pg_locks l on l.locktype = 'advisory' and l.granted and l.classid = 1718511205
			and l.objid::bigint = hashtext(n.name)::bigint & 4294967295 and l.objsubid = 2
			and l.database = (select d.oid from pg_database d where d.datname = current_database())
	)
	select string_agg(format('%s is held by pid %s', what, pid), ', ') from (select * from found order by what, pid limit 5) f`

// explainLocked adds to a lock timeout which sessions hold what the statement waited for, if that can still be seen.
func (s *Store) explainLocked(ctx context.Context, timeout error, locks []Name) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lockedTimeout)
	defer cancel()
	var by *string
	err := s.pool.QueryRow(ctx, lockedBySQL, pgx.QueryExecModeCacheDescribe, locks).Scan(&by)
	if err != nil || by == nil {
		return timeout
	}
	var unavailable *UnavailableError
	if !errors.As(timeout, &unavailable) {
		return timeout
	}
	return &UnavailableError{unavailable.Outcome, fmt.Errorf("%s: %w", *by, unavailable.Err)}
}
