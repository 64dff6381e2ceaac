package store

import (
	"cmp"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"
)

// Limits of leases.
const (
	TTLMin           = 100 * time.Millisecond
	TTLMax           = 24 * time.Hour
	TTLDefault       = 30 * time.Second
	OwnerBytesMax    = 256
	RequestBytesMax  = 256
	MetadataBytesMax = 4096
	ReasonBytesMax   = 1024
	WaitMax          = 10 * time.Minute
)

// Mode says whether several owners may hold a lock at the same time.
type Mode string

// The modes of a lease.
const (
	Exclusive Mode = "exclusive" // one holder, which may write
	Shared    Mode = "shared"    // many holders, none of which may write
)

// Scope says what a lock covers.
type Scope string

// The scopes of a lease.
const (
	Node    Scope = "node"    // the name
	Subtree Scope = "subtree" // the name and everything below it
)

// Lease is one grant of a lock to an owner.
type Lease struct {
	Lock      Name
	OwnerID   string
	ID        uuid.UUID // secret: with the owner and the token, it is enough to renew and release
	Token     int64     // the fencing token
	Mode      Mode
	Scope     Scope
	TTL       time.Duration
	GrantedAt time.Time // by the database's clock, like ExpiresAt
	ExpiresAt time.Time // of a lease in a session: the session's
	// HoldUntil is the latest end of the lease, however often it is renewed, by the MaxHold of its policy; zero: no
	// limit. ExpiresAt is never later.
	HoldUntil time.Time
	// HoldLeft is the time to HoldUntil by the database's clock, so that a caller's clock need not agree with it.
	HoldLeft  time.Duration
	SessionID uuid.UUID // zero: in none
	Waited    time.Duration
	Metadata  json.RawMessage // the owner's, a JSON object or nil
	Principal string          // that acquired it; see AcquireRequest
	// Provider keeps the lease. If it is not PostgreSQL, only an acquire and a renewal return the true ExpiresAt:
	// elsewhere it is when PostgreSQL stops listing the lease, up to 90 s later.
	Provider Provider
	// Replayed: the lease was granted before, to the same request.
	Replayed bool
	// Late is how long a renewal came after its time, a third of the TTL after the grant or the last renewal; 0: it was
	// in time, or this answers no renewal.
	Late time.Duration
}

// Released is the lease that a release has ended. It is zero where the lease was released before.
type Released struct {
	Mode Mode
	Age  time.Duration // from the grant to the end, which of a lease that had expired was earlier
}

// LeaseRef is a holder's reference to its lease; every field must match.
type LeaseRef struct {
	Lock    Name
	OwnerID string
	ID      uuid.UUID
	Token   int64
}

// Check returns ErrInvalid if the owner is outside its limits.
func (r LeaseRef) Check() error { return CheckOwnerID(r.OwnerID) }

// CheckOwnerID returns ErrInvalid for a text that is not the name of an owner.
func CheckOwnerID(id string) error { return checkText("owner_id", id, 1, OwnerBytesMax) }

// Ref names the lease.
func (l Lease) Ref() LeaseRef { return LeaseRef{l.Lock, l.OwnerID, l.ID, l.Token} }

// AcquireRequest asks for a lock.
type AcquireRequest struct {
	Lock Name
	// OwnerID names the owner: 1 to 256 bytes of UTF-8 without control characters. It proves nothing.
	OwnerID string
	// Principal is who sends the request, as the gateway knows; "": it asks for no credential.
	Principal string
	// Mode is exclusive if it is empty.
	Mode Mode
	// Scope is node if it is empty.
	Scope Scope
	// TTL is 100 ms to 24 h in whole milliseconds; 0: 30 s. For a lease in a session it must be 0.
	TTL time.Duration
	// Wait is how long to wait in the queue at most, up to 10 min in whole milliseconds; 0: the request is a try.
	Wait time.Duration
	// SessionID, if not zero, is the session with which the lease ends.
	SessionID uuid.UUID
	// RequestID, if not empty, makes a repeated request return the same lease while that is live. At most 256 bytes.
	// All other fields but Wait must be the same, also the Principal.
	RequestID string
	// Metadata is a JSON object of at most 4096 bytes, or nil.
	Metadata json.RawMessage
	// NewestToken is the greatest token on the lock that the caller knows of; 0: none. Package engine refuses the lease
	// if its token is not greater.
	NewestToken int64
}

// Check returns the request with its defaults, or ErrInvalid naming the field and its limit.
func (r AcquireRequest) Check() (AcquireRequest, error) {
	r.Mode = cmp.Or(r.Mode, Exclusive)
	r.Scope = cmp.Or(r.Scope, Node)
	switch {
	case r.Mode != Exclusive && r.Mode != Shared:
		return r, fmt.Errorf("%w: mode must be exclusive or shared", ErrInvalid)
	case r.Scope != Node && r.Scope != Subtree:
		return r, fmt.Errorf("%w: scope must be node or subtree", ErrInvalid)
	case r.Wait < 0 || r.Wait > WaitMax || r.Wait%time.Millisecond != 0:
		return r, fmt.Errorf("%w: wait_ms is %d, it must be 0 to %d",
			ErrInvalid, r.Wait.Milliseconds(), WaitMax.Milliseconds())
	case r.NewestToken < 0 || r.NewestToken > TokenMax:
		return r, fmt.Errorf("%w: newest_token is %d, it must be 0 to 2^53-1", ErrInvalid, r.NewestToken)
	case r.SessionID != uuid.Nil && r.TTL != 0:
		return r, fmt.Errorf("%w: a lease in a session lasts as long as that: leave ttl_ms out", ErrInvalid)
	case r.SessionID == uuid.Nil:
		r.TTL = cmp.Or(r.TTL, TTLDefault)
		if err := CheckTTL(r.TTL); err != nil {
			return r, err
		}
	}
	return r, cmp.Or(
		CheckOwnerID(r.OwnerID),
		checkText("request_id", r.RequestID, 0, RequestBytesMax),
		checkMetadata(r.Metadata))
}

// CheckTTL returns ErrInvalid if the TTL of a lease or session is outside its limits.
func CheckTTL(ttl time.Duration) error {
	if ttl < TTLMin || ttl > TTLMax || ttl%time.Millisecond != 0 {
		return fmt.Errorf("%w: ttl_ms is %d, it must be %d to %d",
			ErrInvalid, ttl.Milliseconds(), TTLMin.Milliseconds(), TTLMax.Milliseconds())
	}
	return nil
}

// Acquired is the answer to an acquire: a lease, or a ticket in the queue.
type Acquired struct {
	Lease  Lease
	Ticket int64 // 0: the request is not in the queue
	// Requeued says that the request had the ticket already, perhaps at another gateway.
	Requeued bool
	// Left is the remaining time of the only lease in the way; 0: unknown, or other waiters are.
	Left time.Duration
}

// ToQueue is what a sender knows of an acquire that may wait.
type ToQueue struct {
	Beside bool // others wait for the lock, so that it is not granted at once
	Again  bool // the request may be in the queue already, or granted
}

// LeaseState says whether a lease runs.
type LeaseState string

// The states of a lease.
const (
	LeaseRunning LeaseState = "running"
	LeaseEnded   LeaseState = "ended" // released, broken or expired, whether that was noticed or not
)

// LeaseInfo is a lease as others may see it, without its ID and its session's, also one that has ended.
type LeaseInfo struct {
	Lease
	State     LeaseState
	InSession bool
	EndedAt   time.Time // zero where it runs
	EndReason string    // released, broken or expired; empty where it runs
	EndNote   string    // the reason that was given for breaking it
}

// LeaseQuery selects leases, the newest token first, and those with the same token in byte order of their locks.
type LeaseQuery struct {
	Lock    Name       // "": any
	OwnerID string     // "": any
	State   LeaseState // "": any
	Within  []string   // only locks with these names, or below them; nil: all

	// AfterToken and AfterLock are those of the last lease that was seen; zero: none was.
	AfterToken int64
	AfterLock  string
	Limit      int // 1 to PageMax
}

// Check returns ErrInvalid, naming the field, if the query is outside its limits.
func (q LeaseQuery) Check() error {
	switch {
	case q.State != "" && q.State != LeaseRunning && q.State != LeaseEnded:
		return fmt.Errorf("%w: state must be running or ended", ErrInvalid)
	case q.AfterToken < 0:
		return fmt.Errorf("%w: leases are asked for after the token %d, it must be 0 or greater", ErrInvalid, q.AfterToken)
	}
	return cmp.Or(checkText("owner_id", q.OwnerID, 0, OwnerBytesMax), checkLimit(q.Limit))
}
