package store

import (
	"cmp"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"
)

// SessionState is the state of a session.
type SessionState string

// The states of a session.
const (
	SessionLive    SessionState = "live"
	SessionEnded   SessionState = "ended"   // by its owner
	SessionExpired SessionState = "expired" // not kept alive
)

// Session is one TTL and one heartbeat for any number of leases.
type Session struct {
	ID        uuid.UUID // secret: it is enough to keep the session alive and to end it
	OwnerID   string
	TTL       time.Duration
	CreatedAt time.Time // by the database's clock, like ExpiresAt
	ExpiresAt time.Time
	State     SessionState
	Metadata  json.RawMessage // the owner's, a JSON object or nil
	Principal string          // that made it; see AcquireRequest
	// Late is how long a keepalive came after its time, a third of the TTL after the last one; 0: it was in time, or
	// this answers no keepalive.
	Late time.Duration
}

// SessionRequest asks for a session.
type SessionRequest struct {
	// OwnerID names the owner: 1 to 256 bytes of UTF-8 without control characters. It proves nothing.
	OwnerID string
	// Principal is that of an AcquireRequest.
	Principal string
	// TTL is 100 ms to 24 h in whole milliseconds; 0: 30 s.
	TTL time.Duration
	// Metadata is a JSON object of at most 4096 bytes, or nil.
	Metadata json.RawMessage
}

// Check returns the request with its defaults, or ErrInvalid naming the field and its limit.
func (r SessionRequest) Check() (SessionRequest, error) {
	r.TTL = cmp.Or(r.TTL, TTLDefault)
	return r, cmp.Or(checkText("owner_id", r.OwnerID, 1, OwnerBytesMax), CheckTTL(r.TTL), checkMetadata(r.Metadata))
}

// SessionInfo is a session as others may see it, without its ID.
type SessionInfo struct {
	Session
	Handle string // the first 8 hexadecimal digits of the ID: enough to tell sessions apart, and not to use one
	Leases int64  // how many run in it
	// SortKey is its sort key among those that were created in the same microsecond.
	SortKey string
}

// SessionQuery selects sessions, the newest first.
type SessionQuery struct {
	OwnerID string       // "": any
	State   SessionState // "": any

	// AfterMicros and AfterSortKey are of the last session that was seen: when it was created, in microseconds since 1970,
	// and its SortKey. Zero: none was.
	AfterMicros  int64
	AfterSortKey string
	Limit        int // 1 to PageMax
}

// Check returns ErrInvalid, naming the field, if the query is outside its limits.
func (q SessionQuery) Check() error {
	switch q.State {
	case "", SessionLive, SessionEnded, SessionExpired:
	default:
		return fmt.Errorf("%w: state must be live, ended or expired", ErrInvalid)
	}
	if _, err := hex.DecodeString(q.AfterSortKey); err != nil {
		return fmt.Errorf("%w: the sort key of a session is hexadecimal", ErrInvalid)
	}
	return cmp.Or(checkText("owner_id", q.OwnerID, 0, OwnerBytesMax), checkLimit(q.Limit))
}
