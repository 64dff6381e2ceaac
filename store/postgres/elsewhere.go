package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/fencegate/fencegate/store"
)

// GrantElsewhere mints the token of a lease that another provider has granted, and raises the fence to it. When it has
// returned, no write with an older token can commit on that name any more (P3). ExpiresAt of the lease is not when it
// expires, but when PostgreSQL stops listing it: the provider reports its end; see SettleLeases.
//
// It returns the errors of Acquire; ErrLeaseHeld where a lease of another provider is in the way, or where others wait
// for one; ErrUnsupported (an UnsupportedError) if the policy requires live leases.
func (s *Store) GrantElsewhere(ctx context.Context, grant store.ElsewhereGrant) (store.Lease, error) {
	const sql = "select " + acquireColumns + `
		from fence.grant_elsewhere(
			fence.lease_request($1, $2, 'exclusive', 'node', $3, null, $4, $5, $8), $6, $7) a, lateral (select (a.lease).*) l`
	row, err := s.decideAcquire(ctx, onLock(forAcquires, grant.Lock), sql, []any{
		grant.Lock, grant.OwnerID, grant.TTL.Milliseconds(), orNull(grant.RequestID), orNull(string(grant.Metadata)),
		grant.LeaseID, grant.Waited.Milliseconds(), grant.Principal,
	})
	switch {
	case err != nil:
		return store.Lease{}, err
	case row.outcome == "unsupported":
		return store.Lease{}, &store.UnsupportedError{
			Provider: store.ProviderOf(grant.LeaseID), What: "the policy's require_live_lease",
		}
	}
	acquired, err := row.acquired(grant.Lock)
	return acquired.Lease, err
}

// LostReason returns why a lease that its provider no longer knows was lost: ErrLeaseLost (a LostError), ErrNotFound if
// there is no such lock, ErrInvalid or ErrUnavailable. It never returns nil.
func (s *Store) LostReason(ctx context.Context, ref store.LeaseRef) error {
	if err := ref.Check(); err != nil {
		return err
	}
	var status string
	err := s.queryRow(ctx, onLock(forRenewals, ref.Lock),
		"select fence.status_elsewhere($1, $2, $3, $4)", refArgs(ref), &status)
	if err != nil {
		return err
	}
	if status == "live" { // PostgreSQL has not heard of its end yet
		status = "expired"
	}
	return lost(ref.Lock, status, 0)
}

// LeasesElsewhere returns leases that PostgreSQL records as live but another provider keeps: all leases on a lock, or,
// if lock is empty, at most limit that are due for a check. It returns ErrUnavailable.
func (s *Store) LeasesElsewhere(
	ctx context.Context, provider store.Provider, lock store.Name, limit int,
) ([]store.LeaseRef, error) {
	return collect(ctx, s.query,
		"select p.lock, p.owner_id, p.lease_id, p.fencing_token from fence.due_elsewhere($1, $2, $3) p",
		[]any{provider, orNull(lock), limit}, pgx.RowToStructByPos[store.LeaseRef])
}

// SettleLeases notes what a provider has just said of its leases: those that have ended are expired. It returns
// ErrUnavailable.
func (s *Store) SettleLeases(ctx context.Context, seen []store.LeaseStatus) error {
	locks, tokens, lefts := make([]string, len(seen)), make([]int64, len(seen)), make([]int64, len(seen))
	for i, lease := range seen {
		locks[i], tokens[i], lefts[i] = string(lease.Lock), lease.Token, lease.Left.Milliseconds()
	}
	return s.exec(ctx, statement{purpose: forRenewals}, "select fence.note_ends_elsewhere($1, $2, $3)", locks, tokens, lefts)
}
