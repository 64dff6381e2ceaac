package store

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"
)

// Provider is the system that keeps the time of leases. Tokens and fences are always PostgreSQL's.
type Provider string

// The providers.
const (
	ProviderPostgres Provider = "postgres"
	ProviderRedis    Provider = "redis"   // one Redis, with or without replicas
	ProviderRedlock  Provider = "redlock" // a majority of independent Redis servers
)

// Leases of these providers have an ID whose version and next half byte say so; see fence.lease_provider.
var providerBytes = map[byte]Provider{0x81: ProviderRedis, 0x82: ProviderRedlock}

// NewLeaseID returns a random ID for a lease of the provider, which ProviderOf recognises.
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

// ProviderOf returns the provider of the lease with that ID.
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

// ElsewhereGrant is an exclusive lease on a name that was granted in Redis, and that has no token yet. AcquireRequest has
// the limits of its fields.
type ElsewhereGrant struct {
	Lock      Name
	OwnerID   string
	LeaseID   uuid.UUID // of NewLeaseID
	TTL       time.Duration
	RequestID string // empty: none
	Metadata  json.RawMessage
	Principal string // see AcquireRequest
	Waited    time.Duration
}

// LeaseStatus is how long a lease remains live, as its provider reports it; 0: it has ended.
type LeaseStatus struct {
	LeaseRef
	Left time.Duration
}
