package store

import (
	"cmp"
	"encoding/json"
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
	// Late is how much later a keepalive came than a third of the TTL after the one before it; 0: it came in time, or this
	// is no answer to a keepalive.
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
