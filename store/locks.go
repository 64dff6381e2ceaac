package store

import (
	"context"
	"errors"
	"fmt"

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

// Lock is a lock as others may see it. Holder is nil where it is free; its ID is always zero.
type Lock struct {
	Lock   Name
	State  LockState
	Token  int64 // the newest granted on it
	Holder *Lease
}

// LockQuery selects locks.
type LockQuery struct {
	Prefix string    // of the name, any text
	State  LockState // "": any
	After  string    // names greater than this, in byte order
	Limit  int       // 1 to PageMax
}

// lockSQL reads the newest lease of every lock; it is never forgotten while it is the newest. The bounds are ranges on the key, in
// byte order: no name with the prefix is greater than the prefix followed by 128 times the greatest character.
const lockSQL = `
	with locks as (
		select f.resource, f.granted_token, ` + leaseColumns + `,
			case
				when l.ended_at is null and l.expires_at > clock_timestamp() then 'held'
				when f.open then 'expired'
				else 'free'
			end as state
		from fence.fences f
		join fence.leases l on l.lock = f.resource and l.fencing_token = f.granted_token
		where %s
	)
	select l.resource, l.granted_token, l.state, ` + leaseColumns + ` from locks l`

var (
	oneLockSQL   = fmt.Sprintf(lockSQL, "f.resource = $1")
	manyLocksSQL = fmt.Sprintf(lockSQL, "f.resource >= $1 and f.resource <= $1 || repeat(chr(1114111), 128) and f.resource > $2") +
		" where $3 = '' or l.state = $3 order by l.resource limit $4"
)

// Lock returns how a lock stands, ErrNotFound if it was never granted, or ErrUnavailable.
func (s *Store) Lock(ctx context.Context, name Name) (Lock, error) {
	locks, err := s.readLocks(ctx, oneLockSQL, name)
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
	return s.readLocks(ctx, manyLocksSQL, query.Prefix, query.After, query.State, query.Limit)
}

func (s *Store) readLocks(ctx context.Context, sql string, args ...any) ([]Lock, error) {
	locks := []Lock{}
	err := s.query(ctx, sql, args, func(rows pgx.Rows) error {
		var lock Lock
		var row leaseRow
		if err := rows.Scan(append([]any{&lock.Lock, &lock.Token, &lock.State}, row.dest()...)...); err != nil {
			return err
		}
		if lock.State != LockFree {
			holder := row.lease()
			holder.ID = [16]byte{}
			lock.Holder = &holder
		}
		locks = append(locks, lock)
		return nil
	})
	return locks, err
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
