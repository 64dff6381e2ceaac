package store

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// Provider is what keeps the time of leases. Tokens and fences are always PostgreSQL's.
type Provider string

// The providers.
const (
	ProviderPostgres Provider = "postgres"
	ProviderRedis    Provider = "redis"   // one Redis, with or without replicas
	ProviderRedlock  Provider = "redlock" // a majority of independent Redis servers
)

// Leases of these providers have an ID whose version and next half byte say so; see fence.lease_provider.
var providerBytes = map[byte]Provider{0x81: ProviderRedis, 0x82: ProviderRedlock}

// NewLeaseID returns a random ID for a lease that the provider keeps, so that ProviderOf tells it.
func NewLeaseID(provider Provider) uuid.UUID {
	id := uuid.New()
	for b, other := range providerBytes {
		if other == provider {
			_, _ = rand.Read(id[:]) // never fails
			id[6] = b
			id[8] = id[8]&0x3f | 0x80
		}
	}
	return id
}

// ProviderOf returns what keeps the lease of that ID.
func ProviderOf(id uuid.UUID) Provider {
	if provider, ok := providerBytes[id[6]]; ok {
		return provider
	}
	return ProviderPostgres
}

// UnsupportedError says what the provider of a name can't keep. It is ErrUnsupported.
type UnsupportedError struct {
	Provider Provider
	What     string // what was asked for, such as "a shared lease"
}

func (e *UnsupportedError) Error() string {
	return fmt.Sprintf("%v: %s needs leases in postgres, and the leases on this name are kept in %s",
		ErrUnsupported, e.What, e.Provider)
}

// Is reports whether target is ErrUnsupported.
func (e *UnsupportedError) Is(target error) bool { return target == ErrUnsupported }

// ProviderError is a failure of a provider, and not of the database. It is ErrProviderUnavailable.
type ProviderError struct {
	Provider Provider
	Err      error
}

func (e *ProviderError) Error() string { return fmt.Sprintf("%v: %v", ErrProviderUnavailable, e.Err) }

// Is reports whether target is ErrProviderUnavailable.
func (e *ProviderError) Is(target error) bool { return target == ErrProviderUnavailable }

// Unwrap returns the failures of the servers.
func (e *ProviderError) Unwrap() error { return e.Err }

// ProvidedGrant is an exclusive lease on a name that was granted in Redis, and that has no token yet. AcquireRequest has
// the limits of its fields.
type ProvidedGrant struct {
	Lock      Name
	OwnerID   string
	LeaseID   uuid.UUID // of NewLeaseID
	TTL       time.Duration
	RequestID string // empty: none
	Metadata  json.RawMessage
	Principal string // see AcquireRequest
	Waited    time.Duration
}

// CheckOwner returns ErrInvalid if the policy does not let the principal of an acquire use its owner_id, or ErrUnavailable.
// Acquire and GrantProvided decide that themselves.
func (s *Store) CheckOwner(ctx context.Context, request AcquireRequest) error {
	if request.Principal == "" {
		return nil
	}
	allowed := false
	err := s.queryRow(ctx, statement{purpose: forAcquires},
		"select fence.owner_is_allowed(fence.lease_request($1, $2, $3, $4, null, null, null, null, $5))",
		[]any{request.Lock, request.OwnerID, request.Mode, request.Scope, request.Principal}, &allowed)
	if err == nil && !allowed {
		err = errOwnerRefused
	}
	return err
}

// GrantProvided mints the token of a lease that another provider has granted, and raises the fence to it. When it has
// returned, no write with an older token can commit on that name any more (P3). ExpiresAt of the lease is not when it
// expires, but when PostgreSQL stops listing it: the provider reports its end; see SettleLeases.
//
// It returns the errors of Acquire; ErrLeaseHeld where a lease of another provider is in the way, or where others wait
// for one; ErrUnsupported (an UnsupportedError) if the policy requires live leases.
func (s *Store) GrantProvided(ctx context.Context, grant ProvidedGrant) (Lease, error) {
	const sql = `select g.outcome, (g.lease).end_reason, g.left_ms, g.queue_length, ` + sequenceSQL + ", " + leaseColumns + `
		from fence.grant_provided(
			fence.lease_request($1, $2, 'exclusive', 'node', $3, null, $4, $5, $8), $6, $7) g, lateral (select (g.lease).*) l`
	var outcome string
	var endReason pgtype.Text
	var leftMS, queueLength pgtype.Int8
	var sequence int64
	var row leaseRow
	newestToken := s.lineage.newestToken.Load()
	err := s.queryRow(ctx, onLock(forAcquires, grant.Lock), sql,
		[]any{
			grant.Lock, grant.OwnerID, grant.TTL.Milliseconds(), orNull(grant.RequestID), orNull(string(grant.Metadata)),
			grant.LeaseID, grant.Waited.Milliseconds(), grant.Principal,
		},
		append([]any{&outcome, &endReason, &leftMS, &queueLength, &sequence}, row.dest()...)...)
	switch {
	case err != nil:
		return Lease{}, err
	case outcome == "granted":
		if err := s.minted(ctx, sequence, newestToken); err != nil {
			return Lease{}, err
		}
		return row.lease(), nil
	case outcome == "unsupported":
		return Lease{}, &UnsupportedError{ProviderOf(grant.LeaseID), "the policy's require_live_lease"}
	}
	return Lease{}, notGranted(outcome, grant.Lock, row.lease(), endReason.String, milliseconds(leftMS), queueLength.Int64)
}

// LostReason returns why a lease that its provider no longer knows was lost: ErrLeaseLost (a LostError), ErrNotFound if
// there is no such lock, ErrInvalid or ErrUnavailable. It never returns nil.
func (s *Store) LostReason(ctx context.Context, ref LeaseRef) error {
	if err := ref.Check(); err != nil {
		return err
	}
	var status string
	err := s.queryRow(ctx, onLock(forRenewals, ref.Lock),
		"select fence.provided_status($1, $2, $3, $4)", refArgs(ref), &status)
	if err != nil {
		return err
	}
	if status == "live" { // PostgreSQL has not heard of its end yet
		status = "expired"
	}
	return lost(ref.Lock, status, 0)
}

// ProvidedLeases returns leases that PostgreSQL records as live but another provider keeps: all leases on a lock, or,
// if lock is empty, at most limit that are due for a check. It returns ErrUnavailable.
func (s *Store) ProvidedLeases(ctx context.Context, provider Provider, lock Name, limit int) ([]LeaseRef, error) {
	return collect(ctx, s.query,
		"select p.lock, p.owner_id, p.lease_id, p.fencing_token from fence.provided_due($1, $2, $3) p",
		[]any{provider, orNull(lock), limit}, pgx.RowToStructByPos[LeaseRef])
}

// LeaseStatus is how long a lease remains live, as its provider reports it; 0: it has ended.
type LeaseStatus struct {
	LeaseRef
	Left time.Duration
}

// SettleLeases notes what a provider has just said of its leases: those that have ended are expired. It returns
// ErrUnavailable.
func (s *Store) SettleLeases(ctx context.Context, seen []LeaseStatus) error {
	locks, tokens, lefts := make([]string, len(seen)), make([]int64, len(seen)), make([]int64, len(seen))
	for i, lease := range seen {
		locks[i], tokens[i], lefts[i] = string(lease.Lock), lease.Token, lease.Left.Milliseconds()
	}
	return s.exec(ctx, statement{purpose: forRenewals}, "select fence.settle_provided($1, $2, $3)", locks, tokens, lefts)
}
