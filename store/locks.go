package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// PageMax is the most that a list returns at once.
const PageMax = 1000

// LockState is how a lock stands.
type LockState string

// The states of a lock.
const (
	LockFree    LockState = "free"    // nobody may write
	LockHeld    LockState = "held"    // a lease is live
	LockExpired LockState = "expired" // the holder is late, and nobody has replaced it
)

// Lock is a lock as others may see it.
type Lock struct {
	Lock    Name
	State   LockState
	Token   int64    // the newest granted on it
	Holders []Lease  // without their IDs; none where it is free
	Queue   []Waiter // in the order of the line
}

// Holder is the first of the Holders, nil where there is none. An exclusive lease has no other beside it.
func (l Lock) Holder() *Lease {
	if len(l.Holders) == 0 {
		return nil
	}
	return &l.Holders[0]
}

// Waiter is who stands in the line for a lock.
type Waiter struct {
	OwnerID  string
	Mode     Mode
	Scope    Scope
	QueuedAt time.Time
}

// LockQuery selects locks.
type LockQuery struct {
	Prefix string    // of the name, any text
	State  LockState // "": any
	After  string    // names greater than this, in byte order
	Limit  int       // 1 to PageMax
}

// QueueMax is the most waiters that are shown of a lock.
const QueueMax = 1000

// lockSQL reads locks, each with the leases that run on it, or with the one that has run out and that nobody has replaced. A lock's newest
// lease is never forgotten. The bounds are ranges on the key, in byte order: no name with the prefix is greater than the
// prefix followed by 128 times the greatest character.
const lockSQL = `
	with now as materialized (
		select clock_timestamp() as at
	), locks as (
		select f.resource, f.granted_token,
			case
				when exists (
					select from fence.leases l
					where l.lock = f.resource and l.ended_at is null and fence.runs_until(l) > (select at from now))
					then 'held'
				when f.open then 'expired'
				else 'free'
			end as state
		from fence.fences f
		where (f.granted_token > 0 or exists (select from fence.waiters w where w.lock = f.resource)) and %s
	)
	select k.resource, k.granted_token, k.state, %s
	from (%s) k
	left join fence.leases l on l.lock = k.resource and case k.state
		when 'held' then l.ended_at is null and fence.runs_until(l) > (select at from now)
		when 'expired' then l.fencing_token = k.granted_token end
	order by k.resource, l.fencing_token`

const queueSQL = `
	select w.lock, w.owner_id, w.mode, w.scope, w.queued_at
	from unnest($1::text[]) as n (name)
	cross join lateral (
		select * from fence.waiters w where w.lock = n.name and fence.waits(w) order by w.ticket limit $2
	) w
	order by w.lock, w.ticket`

var (
	// A lease in a session runs as long as that.
	shownColumns = strings.Replace(leaseColumns, "l.expires_at", "fence.runs_until(l)", 1)

	oneLockSQL   = fmt.Sprintf(lockSQL, "f.resource = $1", shownColumns, "select * from locks")
	manyLocksSQL = fmt.Sprintf(lockSQL, "f.resource >= $1 and f.resource <= $1 || repeat(chr(1114111), 128) and f.resource > $2",
		shownColumns, "select * from locks where $3 = '' or state = $3 order by resource limit $4")
)

// Lock returns how a lock stands, ErrNotFound if it was never granted, or ErrUnavailable.
func (s *Store) Lock(ctx context.Context, name Name) (Lock, error) {
	locks, err := readLocks(ctx, s.query, oneLockSQL, name)
	if err == nil && len(locks) == 0 {
		err = fmt.Errorf("%w: there is no lock %s", ErrNotFound, name)
	}
	if err != nil {
		return Lock{}, err
	}
	return locks[0], nil
}

// Locks returns locks in byte order of their names. It returns ErrInvalid or ErrUnavailable.
func (s *Store) Locks(ctx context.Context, query LockQuery) ([]Lock, error) {
	if err := checkLimit(query.Limit); err != nil {
		return nil, err
	}
	switch query.State {
	case "", LockFree, LockHeld, LockExpired:
	default:
		return nil, fmt.Errorf("%w: state must be free, held or expired", ErrInvalid)
	}
	return readLocks(ctx, s.query, manyLocksSQL, query.Prefix, query.After, query.State, query.Limit)
}

// queryFunc is Store.query, or the same in a transaction.
type queryFunc func(ctx context.Context, sql string, args []any, scan func(pgx.Rows) error) error

func readLocks(ctx context.Context, query queryFunc, sql string, args ...any) ([]Lock, error) {
	locks := []Lock{}
	err := query(ctx, sql, args, func(rows pgx.Rows) error {
		var lock Lock
		var row leaseRow
		if err := rows.Scan(append([]any{&lock.Lock, &lock.Token, &lock.State}, row.dest()...)...); err != nil {
			return err
		}
		if len(locks) == 0 || locks[len(locks)-1].Lock != lock.Lock {
			locks = append(locks, lock)
		}
		if row.lock.Valid {
			holder := row.lease()
			holder.ID, holder.SessionID = uuid.Nil, uuid.Nil
			last := &locks[len(locks)-1]
			last.Holders = append(last.Holders, holder)
		}
		return nil
	})
	if err != nil || len(locks) == 0 {
		return locks, err
	}
	return locks, readQueues(ctx, query, locks)
}

// readQueues adds to locks, which are in the order of their names, who waits for them.
func readQueues(ctx context.Context, query queryFunc, locks []Lock) error {
	names := make([]Name, len(locks))
	for i := range locks {
		names[i] = locks[i].Lock
	}
	at := 0
	return query(ctx, queueSQL, []any{names, QueueMax}, func(rows pgx.Rows) error {
		var lock Name
		var waiter Waiter
		if err := rows.Scan(&lock, &waiter.OwnerID, &waiter.Mode, &waiter.Scope, &waiter.QueuedAt); err != nil {
			return err
		}
		for locks[at].Lock != lock {
			at++
		}
		locks[at].Queue = append(locks[at].Queue, waiter)
		return nil
	})
}

func checkLimit(limit int) error {
	if limit < 1 || limit > PageMax {
		return fmt.Errorf("%w: limit is %d, it must be 1 to %d", ErrInvalid, limit, PageMax)
	}
	return nil
}

// notFound gives a missing row its name.
func notFound(err error, format string, args ...any) error {
	if errors.Is(err, pgx.ErrNoRows) {
		return fmt.Errorf("%w: %s", ErrNotFound, fmt.Sprintf(format, args...))
	}
	return err
}
