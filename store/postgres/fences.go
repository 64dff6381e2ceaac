package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/fencegate/fencegate/store"
)

const fenceSQL = `
		select
			greatest(f.granted_token, above.subtree_token),
			case when above.subtree_token > coalesce(f.granted_token, 0) then above.open and above.subtree_token = above.granted_token
				else f.open end,
			coalesce(f.last_token, 0), coalesce(f.last_sequence, 0),
			` + policyColumns + `
		from (select * from fence.fences f where f.resource = $1) f
		full join (
			select a.* from fence.fences a where a.resource = any (fence.ancestors($1)) and a.subtree_token > 0
			order by a.subtree_token desc limit 1
		) above on true
		left join fence.policy_for($1) p on true
		where greatest(f.granted_token, f.last_token, f.last_version, above.subtree_token) > 0`

// Fence returns the fence of a resource, ErrNotFound if nothing was ever granted or written on it, or ErrUnavailable.
func (s *Store) Fence(ctx context.Context, resource store.Name) (store.Fence, error) {
	return readFence(ctx, s.query, resource)
}

// SetFence sets the number of the last accepted write of a fence, and returns the former one. It makes the fence if
// there is none. It is for names whose tokens another lock service issues: a token was too great, or the service's
// numbers have started anew. The audit log keeps the reason.
//
// It returns ErrBuiltinAuthority, ErrInvalid, or ErrUnavailable.
func (s *Store) SetFence(
	ctx context.Context, resource store.Name, last store.Accepted, reason string,
) (was store.Accepted, err error) {
	if err := cmp.Or(last.Check(), store.CheckReason(reason)); err != nil {
		return was, err
	}
	err = s.queryRow(ctx, onLock(forReleases, resource), "select * from fence.set_fence($1, $2, $3, $4, "+actorSQL(5)+")",
		actorArgs(ctx, resource, last.Token, last.Sequence, reason), &was.Token, &was.Sequence)
	return was, err
}

// LockAndFence returns a lock and the fence of its name, as they are at one moment; nil where there is no
// fence. It returns what [Store.Lock] does.
func (s *Store) LockAndFence(ctx context.Context, name store.Name) (lock store.Lock, fence *store.Fence, err error) {
	options := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
	var missing error // nothing is wrong with the transaction then
	err = s.inTx(ctx, options, func(tx pgx.Tx) (err error) {
		lock, fence, missing = store.Lock{}, nil, nil
		lock, err = readLock(ctx, queryIn(tx), name)
		if errors.Is(err, store.ErrNotFound) {
			missing = err
			return nil
		}
		if err != nil {
			return err
		}
		read, err := readFence(ctx, queryIn(tx), name)
		if errors.Is(err, store.ErrNotFound) { // an acquire waits for the first grant
			return nil
		}
		fence = &read
		return err
	})
	return lock, fence, errors.Join(err, missing)
}

func readFence(ctx context.Context, query queryFunc, resource store.Name) (fence store.Fence, err error) {
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

// policyColumns are the fields of a Policy; those of the defaults where there is no row p.
const policyColumns = `coalesce(p.prefix, ''), coalesce(p.rule, 'strict'), coalesce(p.authority, 'builtin'),
	coalesce(p.require_lease_id, false), coalesce(p.require_live_lease, false),
	coalesce(p.max_hold_ms, 0) * interval '1 millisecond', coalesce(p.leases, ''),
	coalesce(p.require_principal_owner, false)`

// PutPolicy sets the policy of a prefix, for all decisions that are made after it returns. It returns ErrInvalid,
// ErrInvalidName, ErrLimit or ErrUnavailable.
func (s *Store) PutPolicy(ctx context.Context, policy store.Policy) error {
	if err := policy.Check(); err != nil {
		return err
	}
	policiesMax, ownMax := store.PoliciesMax, 0
	if store.ActorOf(ctx).Scoped {
		policiesMax, ownMax = store.PoliciesMax-store.PoliciesReserved, store.PoliciesOfPrincipalMax
	}
	return s.exec(ctx, statement{}, "select fence.put_policy($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, "+actorSQL(11)+")",
		actorArgs(ctx, policy.Prefix, policy.Rule, policy.Authority, policy.RequireLeaseID, policy.RequireLiveLease,
			orNull(policy.MaxHold.Milliseconds()), orNull(policy.Leases), policy.RequirePrincipalOwner,
			policiesMax, orNull(ownMax))...)
}

// Policy returns the policy that was set on a prefix itself, ErrNotFound, or ErrUnavailable.
func (s *Store) Policy(ctx context.Context, prefix string) (store.Policy, error) {
	policies, err := s.readPolicies(ctx, "select "+policyColumns+" from fence.policies p where p.prefix = $1", prefix)
	if err == nil && len(policies) == 0 {
		err = fmt.Errorf("%w: there is no policy on %q itself", store.ErrNotFound, prefix)
	}
	if err != nil {
		return store.Policy{}, err
	}
	return policies[0], nil
}

// Policies returns all policies in byte order of their prefixes, or ErrUnavailable.
func (s *Store) Policies(ctx context.Context) ([]store.Policy, error) {
	return s.readPolicies(ctx, "select "+policyColumns+" from fence.policies p order by p.prefix")
}

// DeletePolicy removes the policy of a prefix. It returns ErrNotFound, also if an earlier removal is durable now; or
// ErrUnavailable.
func (s *Store) DeletePolicy(ctx context.Context, prefix string) error {
	found := false
	err := s.queryRow(ctx, statement{},
		"select fence.delete_policy($1, "+actorSQL(2)+")", actorArgs(ctx, prefix), &found)
	if err == nil && !found {
		err = fmt.Errorf("%w: there is no policy on %q itself", store.ErrNotFound, prefix)
	}
	return err
}

// readPolicies is for acquires: which provider keeps a lease depends on them, and other reads must not delay that.
func (s *Store) readPolicies(ctx context.Context, sql string, args ...any) ([]store.Policy, error) {
	query := func(ctx context.Context, sql string, args []any, scan func(pgx.Rows) error) error {
		return s.queryAs(ctx, statement{purpose: forAcquires}, sql, args, scan)
	}
	return collect(ctx, query, sql, args, pgx.RowToStructByPos[store.Policy])
}
