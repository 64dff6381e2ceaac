package api

import "encoding/json"

// CampaignRequest is the body of POST /v1/elections/{name}/campaign.
type CampaignRequest struct {
	Candidate string `json:"candidate"`
	// TTLMS is 100 to 86400000; absent: 30000. A term in a session has no TTL of its own.
	TTLMS *int64 `json:"ttl_ms,omitempty"`
	// WaitMS is how long to wait in the queue, 0 (a try) to 600000.
	WaitMS    int64   `json:"wait_ms,omitempty"`
	SessionID *string `json:"session_id,omitempty"`
	// RequestID makes a repeated campaign return the same term: 1 to 256 bytes. Everything but WaitMS must be the same.
	RequestID *string `json:"request_id,omitempty"`
	// NewestTerm is the greatest term that the client knows of, as NewestToken in an AcquireRequest.
	NewestTerm int64 `json:"newest_term,omitempty"`
	// Value is any JSON that the leader shows to observers, at most 4000 bytes.
	Value json.RawMessage `json:"value,omitempty"`
}

// Term is a term of office: a lease on the lock of the election's name, whose fencing token is the Term.
type Term struct {
	Election  string `json:"election"`
	Candidate string `json:"candidate"`
	Term      int64  `json:"term"`
	LeaseID   string `json:"lease_id"`
	TTLMS     int64  `json:"ttl_ms"`
	GrantedAt Time   `json:"granted_at"`
	ExpiresAt Time   `json:"expires_at"`
	// HoldUntil and HoldLeftMS are as in a Lease.
	HoldUntil  *Time           `json:"hold_until,omitempty"`
	HoldLeftMS *int64          `json:"hold_left_ms,omitempty"`
	WaitedMS   int64           `json:"waited_ms"`
	SessionID  string          `json:"session_id,omitempty"`
	Value      json.RawMessage `json:"value,omitempty"`
}

// ResignRequest is the body of POST /v1/elections/{name}/resign. All three must match.
type ResignRequest struct {
	Candidate string `json:"candidate"`
	LeaseID   string `json:"lease_id"`
	Term      int64  `json:"term"`
}

// Resigned is the answer to a resign.
type Resigned struct {
	Resigned bool `json:"resigned"`
}

// Election is the leader and the candidates that wait. It is also the data of the events of observe.
type Election struct {
	Election string `json:"election"`
	// Leader is absent if there is none; Term is then the last one.
	Leader     string          `json:"leader,omitempty"`
	Term       int64           `json:"term"`
	Since      *Time           `json:"since,omitempty"`
	ExpiresAt  *Time           `json:"expires_at,omitempty"`
	Value      json.RawMessage `json:"value,omitempty"`
	Candidates []string        `json:"candidates"`
}

// Elections is a page of GET /v1/elections, ordered by name.
type Elections struct {
	Elections  []Election `json:"elections"`
	NextCursor string     `json:"next_cursor,omitempty"`
}
