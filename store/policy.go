package store

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"
)

// Rule is how step 4 of the rule is judged.
type Rule string

// The rules.
const (
	RuleStrict    Rule = "strict"     // a write's token and sequence must be greater than the last ones
	RuleSameToken Rule = "same_token" // a write without a sequence may repeat the last token
)

// Authority says who issues the tokens.
type Authority string

// The authorities.
const (
	AuthorityBuiltin  Authority = "builtin"
	AuthorityExternal Authority = "external" // an etcd revision, a ZooKeeper zxid, …: only step 4 applies
)

// Limits of policies.
const (
	PoliciesMax            = 10_000
	PoliciesReserved       = 1_000 // of them for administrators of all names
	PoliciesOfPrincipalMax = 1_000 // that an administrator of some names has set first

	MaxHoldMin = TTLMin
	MaxHoldMax = 365 * 24 * time.Hour
)

// PoliciesChannel is where PutPolicy, DeletePolicy and SetFence notify of a change.
const PoliciesChannel = "fence_policies"

// Policy is what holds for the name Prefix and every name below it, unless a longer prefix has a policy of its own.
// Prefix "" is every name.
type Policy struct {
	Prefix           string
	Rule             Rule
	Authority        Authority
	RequireLeaseID   bool
	RequireLiveLease bool
	// MaxHold is the longest time from the grant of a lease to its end, however often it is renewed, MaxHoldMin to
	// MaxHoldMax in whole milliseconds; 0: no limit. Running leases get it by their next renewal or keepalive.
	MaxHold time.Duration
	// Leases is the provider of the leases; empty: the gateway's default.
	Leases Provider
	// RequirePrincipalOwner: the OwnerID of an acquire must be its Principal, or begin with that and a slash. Requests
	// without a principal are exempt.
	RequirePrincipalOwner bool
}

// Check returns ErrInvalid or ErrInvalidName, naming the field, if the policy is outside its limits.
func (p Policy) Check() error {
	if p.Prefix != "" {
		if _, err := ParseName("prefix", p.Prefix); err != nil {
			return err
		}
	}
	switch {
	case p.Rule != RuleStrict && p.Rule != RuleSameToken:
		return fmt.Errorf("%w: rule must be strict or same_token", ErrInvalid)
	case p.Authority != AuthorityBuiltin && p.Authority != AuthorityExternal:
		return fmt.Errorf("%w: authority must be builtin or external", ErrInvalid)
	case p.Leases != "" && p.Leases != ProviderPostgres && p.Leases != ProviderRedis && p.Leases != ProviderRedlock:
		return fmt.Errorf("%w: leases must be postgres, redis or redlock, or absent for the gateway's default", ErrInvalid)
	case p.Leases != "" && p.Leases != ProviderPostgres && p.RequireLiveLease:
		return fmt.Errorf("%w: require_live_lease needs leases in postgres: only Redis knows whether a lease in %s is live",
			ErrInvalid, p.Leases)
	case p.Authority == AuthorityExternal && p.Leases != "":
		return fmt.Errorf("%w: with authority external fencegate grants no leases", ErrInvalid)
	case p.Authority == AuthorityExternal && (p.RequirePrincipalOwner || p.RequireLeaseID || p.RequireLiveLease || p.MaxHold != 0):
		return fmt.Errorf("%w: with authority external there are no leases that could be required or limited", ErrInvalid)
	case p.MaxHold != 0 && (p.MaxHold < MaxHoldMin || p.MaxHold > MaxHoldMax || p.MaxHold%time.Millisecond != 0):
		return fmt.Errorf("%w: max_hold_ms is %d, it must be %d to %d, or absent for no limit",
			ErrInvalid, p.MaxHold.Milliseconds(), MaxHoldMin.Milliseconds(), MaxHoldMax.Milliseconds())
	}
	return nil
}

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
