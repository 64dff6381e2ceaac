package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgtype"
)

// leaseColumns are the columns of a lease, in the order of leaseRow.dest. They are those of the alias l.
const leaseColumns = `l.lock, l.owner_id, l.lease_id, l.fencing_token, l.mode, l.scope, l.ttl_ms, l.granted_at, l.expires_at, l.metadata`

// leaseRow is a lease as a row that may be missing.
type leaseRow struct {
	lock, owner, mode, scope pgtype.Text
	id                       pgtype.UUID
	token, ttlMS             pgtype.Int8
	grantedAt, expiresAt     pgtype.Timestamptz
	metadata                 []byte
}

func (r *leaseRow) dest() []any {
	return []any{&r.lock, &r.owner, &r.id, &r.token, &r.mode, &r.scope, &r.ttlMS, &r.grantedAt, &r.expiresAt, &r.metadata}
}

func (r *leaseRow) lease() Lease {
	return Lease{
		Lock: Name(r.lock.String), OwnerID: r.owner.String, ID: r.id.Bytes, Token: r.token.Int64,
		Mode: r.mode.String, Scope: r.scope.String, TTL: time.Duration(r.ttlMS.Int64) * time.Millisecond,
		GrantedAt: r.grantedAt.Time, ExpiresAt: r.expiresAt.Time, Metadata: r.metadata,
	}
}

// Acquire tries to take a lock. When it has returned a lease, no write with an older token can commit on that name any more (P3).
//
// It returns ErrLeaseHeld (a HeldError) where another lease is live, also the caller's own: leases are not re-entrant;
// ErrLeaseLost (a LostError) if the lease that this RequestID was granted has ended; ErrInvalid; ErrExternalAuthority; ErrUnavailable.
func (s *Store) Acquire(ctx context.Context, request AcquireRequest) (Lease, error) {
	request, err := request.check()
	if err != nil {
		return Lease{}, err
	}
	const sql = `select a.outcome, (a.lease).end_reason, extract(epoch from l.expires_at - clock_timestamp())::float8, ` + leaseColumns + `
		from fence.acquire($1, $2, $3, $4, $5) a, lateral (select (a.lease).*) l`
	var outcome string
	var endReason pgtype.Text
	var remaining pgtype.Float8
	var row leaseRow
	err = s.queryRow(ctx, sql,
		[]any{request.Lock, request.OwnerID, request.TTL.Milliseconds(), nullable(request.RequestID), nullableJSON(request.Metadata)},
		append([]any{&outcome, &endReason, &remaining}, row.dest()...)...)
	if err != nil {
		return Lease{}, err
	}
	switch outcome {
	case "granted":
		return row.lease(), nil
	case "held":
		return Lease{}, &HeldError{
			Lock: request.Lock, OwnerID: row.owner.String, ExpiresAt: row.expiresAt.Time,
			Remaining: max(0, time.Duration(remaining.Float64*float64(time.Second))),
		}
	case "lost":
		return Lease{}, &LostError{request.Lock, endReason.String}
	case "request_id_reused":
		return Lease{}, fmt.Errorf("%w: request_id was used on this lock by another owner", ErrInvalid)
	}
	return Lease{}, fmt.Errorf("fence.acquire answered %q", outcome)
}

// Renew makes a live lease last ttl from now; 0: the TTL that it has. It returns ErrLeaseLost (a LostError), also when the lease
// has expired and nobody has replaced it; ErrNotFound if there is no such lock; ErrInvalid; ErrUnavailable.
func (s *Store) Renew(ctx context.Context, ref LeaseRef, ttl time.Duration) (Lease, error) {
	if err := ref.check(); err != nil {
		return Lease{}, err
	}
	var ttlMS *int64
	if ttl != 0 {
		if err := checkTTL(ttl); err != nil {
			return Lease{}, err
		}
		ms := ttl.Milliseconds()
		ttlMS = &ms
	}
	const sql = `select r.standing, ` + leaseColumns + `
		from fence.renew($1, $2, $3, $4, $5) r, lateral (select (r.lease).*) l`
	var standing string
	var row leaseRow
	err := s.queryRow(ctx, sql, append(ref.args(), ttlMS), append([]any{&standing}, row.dest()...)...)
	if err != nil {
		return Lease{}, err
	}
	if standing != "live" {
		return Lease{}, lost(ref.Lock, standing)
	}
	return row.lease(), nil
}

// Release ends a lease and closes the fence behind it. Sent twice, it succeeds twice. It returns ErrLeaseLost (a LostError) if
// the lease was broken, or expired and was replaced; ErrNotFound if there is no such lock; ErrInvalid; ErrUnavailable.
func (s *Store) Release(ctx context.Context, ref LeaseRef) error {
	if err := ref.check(); err != nil {
		return err
	}
	var standing string
	if err := s.queryRow(ctx, "select fence.release($1, $2, $3, $4)", ref.args(), &standing); err != nil {
		return err
	}
	if standing != "released" {
		return lost(ref.Lock, standing)
	}
	return nil
}

// Break ends whoever's lease is on the lock, live or expired, and closes the fence; the reason is kept with the lease. It returns
// the lease that was ended (without its ID), ErrNotFound where nobody may write, ErrInvalid, or ErrUnavailable.
func (s *Store) Break(ctx context.Context, lock Name, reason string) (Lease, error) {
	if err := checkText("reason", reason, 1, ReasonBytesMax); err != nil {
		return Lease{}, err
	}
	const sql = `select b.outcome, ` + leaseColumns + ` from fence.break($1, $2) b, lateral (select (b.lease).*) l`
	var outcome string
	var row leaseRow
	if err := s.queryRow(ctx, sql, []any{lock, reason}, append([]any{&outcome}, row.dest()...)...); err != nil {
		return Lease{}, err
	}
	if outcome != "broken" {
		return Lease{}, fmt.Errorf("%w: nobody holds the lock %s", ErrNotFound, lock)
	}
	lease := row.lease()
	lease.ID = [16]byte{}
	return lease, nil
}

func (r LeaseRef) args() []any { return []any{r.Lock, r.OwnerID, r.ID, r.Token} }

func lost(lock Name, standing string) error {
	if standing == "not_found" {
		return fmt.Errorf("%w: there is no lock %s", ErrNotFound, lock)
	}
	return &LostError{lock, standing}
}

func nullable(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

// nullableJSON keeps a nil from becoming the JSON value null, and the text from being taken for bytes.
func nullableJSON(text []byte) *string {
	if text == nil {
		return nil
	}
	return nullable(string(text))
}
