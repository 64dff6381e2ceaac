package api

import "encoding/json"

// SessionRequest is the body of POST /v1/sessions.
type SessionRequest struct {
	OwnerID string `json:"owner_id"`
	// TTLMS is 100 to 86400000; absent: 30000.
	TTLMS *int64 `json:"ttl_ms,omitempty"`
	// Metadata is a JSON object that the owner chooses, at most 4096 bytes.
	Metadata json.RawMessage `json:"metadata,omitempty"`
}

// Session is one TTL and one heartbeat for any number of leases. SessionID is its owner's secret. POST /v1/sessions,
// the keepalive and GET answer a Session.
type Session struct {
	SessionID string `json:"session_id"`
	OwnerID   string `json:"owner_id"`
	TTLMS     int64  `json:"ttl_ms"`
	CreatedAt Time   `json:"created_at"`
	ExpiresAt Time   `json:"expires_at"`
	// State is live, ended or expired.
	State string `json:"state"`
	// Leases is the number of its live leases; only GET counts them.
	Leases   *int64          `json:"leases,omitempty"`
	Metadata json.RawMessage `json:"metadata,omitempty"`
}

// SessionEnded is the answer to DELETE /v1/sessions/{id}, also if it is sent again. The answer for an expired session
// is lease_lost.
type SessionEnded struct {
	Ended bool `json:"ended"`
	// Released is the number of leases that it released.
	Released int64 `json:"released"`
}

// SessionInfo is a session as others may see it. Handle is the first 8 digits of its SessionID.
type SessionInfo struct {
	Handle    string `json:"handle"`
	OwnerID   string `json:"owner_id"`
	TTLMS     int64  `json:"ttl_ms"`
	CreatedAt Time   `json:"created_at"`
	ExpiresAt Time   `json:"expires_at"`
	// State is live, ended or expired.
	State string `json:"state"`
	// Leases is the number of its live leases.
	Leases   int64           `json:"leases"`
	Metadata json.RawMessage `json:"metadata,omitempty"`
	// Principal made it; absent without authentication.
	Principal string `json:"principal,omitempty"`
}

// SessionInfos is a page of GET /v1/sessions, the newest first.
type SessionInfos struct {
	Sessions   []SessionInfo `json:"sessions"`
	NextCursor string        `json:"next_cursor,omitempty"`
}
