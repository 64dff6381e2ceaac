package store

import (
	"cmp"
	"fmt"
	"time"

	"github.com/fencegate/fencegate/internal/access"
	"github.com/fencegate/fencegate/internal/apikey"
)

// Limits of keys.
const (
	KeysMax          = 10_000 // that have not ended
	KeyGrantsMax     = 100
	KeyLifetimeMin   = time.Second
	KeyLifetimeMax   = 10 * 365 * 24 * time.Hour
	KeyOverlapMax    = 30 * 24 * time.Hour
	PrincipalMax     = 200 // bytes of a principal's name
	descriptionMax   = 1000
	keyIDDescription = "the id of a key has 10 letters and digits"
)

// KeysChannel is where changes of keys are notified.
const KeysChannel = "fence_keys"

// Key is an API key as administrators see it, without its secret.
type Key struct {
	ID          string
	Principal   string
	Description string
	Grants      []access.Grant
	CreatedAt   time.Time
	CreatedBy   string // the principal that made it
	// ExpiresAt is zero for a key without an end, RevokedAt for one that was not revoked, and LastUsedAt for one that was
	// not used.
	ExpiresAt, RevokedAt, LastUsedAt time.Time
}

// KeyRequest asks for a key.
type KeyRequest struct {
	ID     string // of the new key; see apikey.New
	Digest apikey.Digest
	// Lifetime is the time until the key expires, KeyLifetimeMin to KeyLifetimeMax. 0: it does not expire; for a
	// rotation: the lifetime of the old key.
	Lifetime  time.Duration
	CreatedBy string

	Principal   string         // not for a rotation, like the following
	Description string         // any text
	Grants      []access.Grant // 1 to KeyGrantsMax
}

// Check returns ErrInvalid or ErrInvalidName, naming the field, if the request for a new key is outside its limits.
func (r KeyRequest) Check() error { return cmp.Or(r.checkLifetime(), r.checkHolder()) }

// CheckRotation is Check for a key that replaces the one with this ID, which expires after the overlap.
func (r KeyRequest) CheckRotation(id string, overlap time.Duration) error {
	if overlap < 0 || overlap > KeyOverlapMax {
		return fmt.Errorf("%w: the overlap is %s, it must be 0 to %s", ErrInvalid, overlap, KeyOverlapMax)
	}
	return cmp.Or(CheckKeyID(id), r.checkLifetime())
}

func (r KeyRequest) checkLifetime() error {
	if r.Lifetime != 0 && (r.Lifetime < KeyLifetimeMin || r.Lifetime > KeyLifetimeMax) {
		return fmt.Errorf("%w: the lifetime of a key is %s, it must be %s to %s",
			ErrInvalid, r.Lifetime, KeyLifetimeMin, KeyLifetimeMax)
	}
	return nil
}

func (r KeyRequest) checkHolder() error {
	if access.IsReserved(r.Principal) {
		return fmt.Errorf("%w: principal is %.100q, which no key may have: %q is for callers without a credential, and "+
			"names that begin with %q are for roles of the database", ErrInvalid, r.Principal, access.Anyone.Name, access.SQLPrefix)
	}
	if len(r.Grants) < 1 || len(r.Grants) > KeyGrantsMax {
		return fmt.Errorf("%w: a key has %d grants, it must have 1 to %d", ErrInvalid, len(r.Grants), KeyGrantsMax)
	}
	for _, grant := range r.Grants {
		if grant.Prefix == access.AllNames {
			continue
		}
		if _, err := ParseName("grant", grant.Prefix); err != nil {
			return fmt.Errorf("grants: %w", err)
		}
	}
	return cmp.Or(checkText("principal", r.Principal, 1, PrincipalMax), checkSeen("principal", r.Principal),
		checkText("description", r.Description, 0, descriptionMax), checkSeen("description", r.Description))
}

// CheckKeyID returns ErrInvalid for a text that is no ID of a key.
func CheckKeyID(id string) error {
	if !apikey.IsID(id) {
		return fmt.Errorf("%w: %s", ErrInvalid, keyIDDescription)
	}
	return nil
}

// KeyQuery selects keys, the newest first. AfterMicros and AfterID are of the last key that was seen: when it was
// created, in microseconds since 1970, and its ID. Zero: none was.
type KeyQuery struct {
	AfterMicros int64
	AfterID     string
	Limit       int // 1 to PageMax
}

// Check returns ErrInvalid if the query is outside its limits.
func (q KeyQuery) Check() error { return checkLimit(q.Limit) }

// LiveKey is a key as a gateway needs it to recognise its holder.
type LiveKey struct {
	ID        string
	Digest    apikey.Digest
	Principal string
	Grants    []access.Grant
	ExpiresAt time.Time // zero: never
}

// LiveKeys are all keys that were neither revoked nor expired at a time of the database.
type LiveKeys struct {
	Changes int64 // how often the keys were changed until then
	At      time.Time
	Keys    []LiveKey
	// Unreadable says which keys are left out, since this version can't read their grants; nil: none.
	Unreadable error
}
