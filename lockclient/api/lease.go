package api

import "encoding/json"

// AcquireRequest is the body of POST /v1/locks/{lock}/acquire.
type AcquireRequest struct {
	OwnerID string `json:"owner_id"`
	// TTLMS is 100 to 86400000; absent: 30000. A lease in a session has no TTL of its own.
	TTLMS *int64 `json:"ttl_ms,omitempty"`
	// Mode is "exclusive" (the default), or "shared": many may hold it, and none of them may write.
	Mode string `json:"mode,omitempty"`
	// Scope is "node" (the default), or "subtree": the name and everything below it.
	Scope string `json:"scope,omitempty"`
	// WaitMS is how long to wait in the queue, 0 (a try) to 600000.
	WaitMS int64 `json:"wait_ms,omitempty"`
	// SessionID puts the lease into a session, and it lasts as long as the session.
	SessionID *string `json:"session_id,omitempty"`
	// RequestID makes a repeated acquire return the same lease: 1 to 256 bytes. Everything but WaitMS must be the same.
	RequestID *string `json:"request_id,omitempty"`
	// NewestToken is the greatest fencing token on the lock that the client knows of: the gateway grants nothing below,
	// since the database is an older one then.
	NewestToken int64 `json:"newest_token,omitempty"`
	// Metadata is a JSON object that the owner chooses, at most 4096 bytes.
	Metadata json.RawMessage `json:"metadata,omitempty"`
}

// Lease is the answer to acquire and renew. LeaseID is the holder's secret.
type Lease struct {
	Lock         string `json:"lock"`
	OwnerID      string `json:"owner_id"`
	LeaseID      string `json:"lease_id"`
	FencingToken int64  `json:"fencing_token"`
	Mode         string `json:"mode"`
	Scope        string `json:"scope"`
	TTLMS        int64  `json:"ttl_ms"`
	GrantedAt    Time   `json:"granted_at"`
	ExpiresAt    Time   `json:"expires_at"`
	// HoldUntil is when the lease ends, however often it is renewed, by the max_hold_ms of its policy; absent: no limit.
	HoldUntil *Time `json:"hold_until,omitempty"`
	// HoldLeftMS is the time to HoldUntil by the database's clock; absent: no limit.
	HoldLeftMS *int64 `json:"hold_left_ms,omitempty"`
	// WaitedMS is how long the owner waited in the queue; 0 in the answer to a renewal.
	WaitedMS  int64           `json:"waited_ms"`
	SessionID string          `json:"session_id,omitempty"`
	Metadata  json.RawMessage `json:"metadata,omitempty"`
	// Provider is "redis" or "redlock" if the lease is kept there; absent: in PostgreSQL.
	Provider string `json:"provider,omitempty"`
}

// RenewRequest is the body of POST /v1/locks/{lock}/renew. All three of owner, lease_id and token must match.
type RenewRequest struct {
	OwnerID      string `json:"owner_id"`
	LeaseID      string `json:"lease_id"`
	FencingToken int64  `json:"fencing_token"`
	// TTLMS replaces the lease's TTL; absent: the TTL stays.
	TTLMS *int64 `json:"ttl_ms,omitempty"`
}

// ReleaseRequest is the body of POST /v1/locks/{lock}/release. All three must match.
type ReleaseRequest struct {
	OwnerID      string `json:"owner_id"`
	LeaseID      string `json:"lease_id"`
	FencingToken int64  `json:"fencing_token"`
}

// Released is the answer to a release.
type Released struct {
	Released bool `json:"released"`
}

// BreakRequest is the body of POST /v1/locks/{lock}/break.
type BreakRequest struct {
	// Reason is kept with the lease: 1 to 1024 bytes.
	Reason string `json:"reason"`
}

// Broken is the answer to a break: the lease that it ended.
type Broken struct {
	Broken       bool   `json:"broken"`
	Lock         string `json:"lock"`
	OwnerID      string `json:"owner_id"`
	FencingToken int64  `json:"fencing_token"`
}

// Lock is the state of a lock.
type Lock struct {
	Lock string `json:"lock"`
	// State is free (no lease may write), held, or expired (the holder is late, and was not replaced).
	State        string       `json:"state"`
	FencingToken int64        `json:"fencing_token"`
	Holders      []LockHolder `json:"holders"`
	Queue        []Waiter     `json:"queue"`
	// QueueLength is the number of waiters; Queue may show fewer.
	QueueLength int64 `json:"queue_length"`
	// Fence is the fence of the lock's name at the same moment. Lists don't have it, nor does a name without a fence.
	Fence *Fence `json:"fence,omitempty"`
}

// LockHolder is a lease as others may see it: without its lease_id.
type LockHolder struct {
	OwnerID      string `json:"owner_id"`
	FencingToken int64  `json:"fencing_token"`
	Mode         string `json:"mode"`
	Scope        string `json:"scope"`
	TTLMS        int64  `json:"ttl_ms"`
	GrantedAt    Time   `json:"granted_at"`
	ExpiresAt    Time   `json:"expires_at"`
	// Principal acquired it, by SQL "sql:" and a role; absent without authentication.
	Principal string `json:"principal,omitempty"`
	// HoldUntil is when it ends, however often it is renewed; absent: no limit.
	HoldUntil *Time           `json:"hold_until,omitempty"`
	Metadata  json.RawMessage `json:"metadata,omitempty"`
	// Provider is "redis" or "redlock" if the lease is kept there; absent: in PostgreSQL. ExpiresAt of
	// such a lease in a list is when PostgreSQL stops listing it, up to 90 s after its end. A single lock shows the end
	// that Redis reports.
	Provider string `json:"provider,omitempty"`
}

// LeaseInfo is a lease as others may see it, also one that has ended.
type LeaseInfo struct {
	Lock string `json:"lock"`
	LockHolder
	// State is running or ended.
	State string `json:"state"`
	// InSession says that it lasts, or lasted, as long as a session.
	InSession bool  `json:"in_session"`
	WaitedMS  int64 `json:"waited_ms"`
	// EndedAt and EndReason (released, broken or expired) are absent while it runs.
	EndedAt   *Time  `json:"ended_at,omitempty"`
	EndReason string `json:"end_reason,omitempty"`
	// EndNote is the reason given with its break.
	EndNote string `json:"end_note,omitempty"`
}

// LeaseInfos is a page of GET /v1/leases, the newest token first.
type LeaseInfos struct {
	Leases     []LeaseInfo `json:"leases"`
	NextCursor string      `json:"next_cursor,omitempty"`
}

// Waiter is a waiter in the queue of a lock.
type Waiter struct {
	OwnerID  string `json:"owner_id"`
	Mode     string `json:"mode"`
	Scope    string `json:"scope"`
	QueuedAt Time   `json:"queued_at"`
	// Principal sent the acquire; absent without authentication.
	Principal string `json:"principal,omitempty"`
}

// Locks is a page of GET /v1/locks, ordered by name unless another sort was asked for.
type Locks struct {
	Locks []Lock `json:"locks"`
	// Total is the number on all pages, if the request asked for it.
	Total *int64 `json:"total,omitempty"`
	// NextCursor is absent on the last page.
	NextCursor string `json:"next_cursor,omitempty"`
}

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

// Waits is the answer to GET /v1/waits: the wait-for graph, the oldest waits first.
type Waits struct {
	Waits []WaitOf `json:"waits"`
	// Truncated says that there are more waits, or that one has more blockers.
	Truncated bool `json:"truncated"`
}

// WaitOf is a waiter in the queue of a lock.
type WaitOf struct {
	OwnerID  string `json:"owner_id"`
	Lock     string `json:"lock"`
	Mode     string `json:"mode"`
	Scope    string `json:"scope"`
	QueuedAt Time   `json:"queued_at"`
	// Principal sent the acquire; absent without authentication.
	Principal string `json:"principal,omitempty"`
	// For are its blockers: the holders, then the waiters ahead, the nearest last.
	For []Blocker `json:"for"`
}

// Blocker is an owner that a waiter waits for.
type Blocker struct {
	OwnerID string `json:"owner_id"`
	// Principal sent the acquire; absent without authentication.
	Principal string `json:"principal,omitempty"`
	// Relation is holds or before.
	Relation string `json:"relation"`
	// Lock is the one that it holds or waits for. It is not the lock waited for where one of the two is a subtree.
	Lock string `json:"lock"`
}
