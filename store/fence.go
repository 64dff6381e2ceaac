package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// Fence is the row that decides which writes to a resource pass.
type Fence struct {
	Resource     Name
	GrantedToken int64 // the newest granted on the name, or on a subtree that it is in
	Open         bool  // whether that grant may still write
	LastToken    int64 // of the last accepted write, like LastSequence
	LastSequence int64
	Policy       Policy // what holds for the resource
}

const fenceSQL = `
		select
			greatest(f.granted_token, above.granted_token),
			case when above.granted_token > coalesce(f.granted_token, 0) then above.open else f.open end
				and not exists (
					select from fence.leases l
					where l.lock = case when above.granted_token > coalesce(f.granted_token, 0) then above.name else f.resource end
						and l.fencing_token = greatest(f.granted_token, above.granted_token) and l.hold_until <= clock_timestamp()),
			coalesce(f.last_token, 0), coalesce(f.last_sequence, 0),
			` + policyColumns + `
		from (select * from fence.fences f where f.resource = $1) f
		full join (
			select s.* from fence.subtrees s where s.name = any (fence.ancestors($1)) order by s.granted_token desc limit 1
		) above on true
		left join fence.policy_for($1) p on true
		where greatest(f.granted_token, f.last_token, f.last_version, above.granted_token) > 0`

// Fence returns the fence of a resource, ErrNotFound if nothing was ever granted or written on it, or ErrUnavailable.
func (s *Store) Fence(ctx context.Context, resource Name) (Fence, error) {
	return readFence(ctx, s.query, resource)
}

// Accepted is the number of a write that a fence accepted: its token, and its sequence or 0.
type Accepted struct{ Token, Sequence int64 }

// Check returns ErrInvalid, naming the field, if the number is outside its limits.
func (a Accepted) Check() error {
	switch {
	case a.Token < 0 || a.Token > TokenMax:
		return fmt.Errorf("%w: last_token is %d, it must be 0 to 2^53-1", ErrInvalid, a.Token)
	case a.Sequence < 0 || a.Sequence > TokenMax:
		return fmt.Errorf("%w: last_sequence is %d, it must be 0 to 2^53-1", ErrInvalid, a.Sequence)
	}
	return nil
}

// SetFence makes a fence read as if the write with this number was the last one that it accepted, and returns the
// former number. It makes the fence if there is none. It is for names whose tokens another lock service issues, after a
// token that was too great, or when that service's numbers have started anew. The audit log has the reason.
//
// It returns ErrBuiltinAuthority, ErrInvalid, or ErrUnavailable.
func (s *Store) SetFence(ctx context.Context, resource Name, last Accepted, reason string) (was Accepted, err error) {
	if err := cmp.Or(last.Check(), CheckReason(reason)); err != nil {
		return was, err
	}
	err = s.queryRow(ctx, onLock(forReleases, resource), "select * from fence.set_fence($1, $2, $3, $4, "+actorSQL(5)+")",
		actorArgs(ctx, resource, last.Token, last.Sequence, reason), &was.Token, &was.Sequence)
	return was, err
}

// LockAndFence returns a lock and the fence of its name, as they are at one moment; nil where there is no
// fence. It returns what [Store.Lock] does.
func (s *Store) LockAndFence(ctx context.Context, name Name) (lock Lock, fence *Fence, err error) {
	options := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
	var missing error // nothing is wrong with the transaction then
	err = s.inTx(ctx, options, func(tx pgx.Tx) (err error) {
		lock, fence, missing = Lock{}, nil, nil
		lock, err = readLock(ctx, queryIn(tx), name)
		if errors.Is(err, ErrNotFound) {
			missing = err
			return nil
		}
		if err != nil {
			return err
		}
		read, err := readFence(ctx, queryIn(tx), name)
		if errors.Is(err, ErrNotFound) { // an acquire waits for the first grant
			return nil
		}
		fence = &read
		return err
	})
	return lock, fence, errors.Join(err, missing)
}

func readFence(ctx context.Context, query queryFunc, resource Name) (fence Fence, err error) {
	err = query(ctx, fenceSQL, []any{resource}, func(rows pgx.Rows) error {
		fence.Resource = resource
		p := &fence.Policy
		return rows.Scan(&fence.GrantedToken, &fence.Open, &fence.LastToken, &fence.LastSequence,
			&p.Prefix, &p.Rule, &p.Authority, &p.RequireLeaseID, &p.RequireLiveLease, &p.MaxHold, &p.Leases,
			&p.RequirePrincipalOwner)
	})
	if err == nil && fence.Resource == "" {
		err = notFound(pgx.ErrNoRows, "there is no fence of %s: nothing was granted or written on it", resource)
	}
	return fence, err
}
