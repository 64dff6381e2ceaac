package api

import "encoding/json"

// AcquireRequest is the body of POST /v1/locks/{lock}/acquire.
type AcquireRequest struct {
	OwnerID string `json:"owner_id" schema:"OwnerID"`
	// How long the lease lasts without a renewal: 100 ms to 24 h.
	TTLMS *int64 `json:"ttl_ms,omitempty" schema:"TTL nullable default=30000"`
	// `exclusive`: one holder, which may write. `shared`: many holders, which may not write.
	Mode string `json:"mode,omitempty" schema:"Mode nullable default=exclusive"`
	// `node`: the name itself. `subtree`: the name and everything below it.
	Scope string `json:"scope,omitempty" schema:"Scope nullable default=node"`
	// How long to wait in the queue, up to 10 minutes; 0: a try.
	WaitMS int64 `json:"wait_ms,omitempty" schema:"minimum=0 maximum=600000 nullable default=0"`
	// The session that the lease is to last as long as; then without `ttl_ms`.
	SessionID *string `json:"session_id,omitempty" schema:"LeaseID nullable"`
	// Makes a repeated acquire of this owner return the same lease; all else but `wait_ms` must be the same. 1 to 256
	// bytes without control characters; unique, so best a UUID.
	RequestID *string `json:"request_id,omitempty" schema:"OwnerID nullable"`
	// The greatest fencing token on the name that the client knows of. A lease whose token is not greater is given
	// back: `unavailable`, since the database is in an older state then.
	NewestToken int64 `json:"newest_token,omitempty" schema:"TokenOrNone nullable default=0"`
	// Kept with the lease and shown to all: a JSON object of at most 4096 bytes, without `\u0000` in its texts.
	Metadata json.RawMessage `json:"metadata,omitempty" schema:"object nullable"`
}

// Lease is the answer to acquire and renew. LeaseID is the holder's secret.
type Lease struct {
	Lock         string `json:"lock" schema:"Name"`
	OwnerID      string `json:"owner_id" schema:"OwnerID"`
	LeaseID      string `json:"lease_id" schema:"LeaseID"`
	FencingToken int64  `json:"fencing_token" schema:"Token"`
	Mode         string `json:"mode" schema:"Mode"`
	Scope        string `json:"scope" schema:"Scope"`
	TTLMS        int64  `json:"ttl_ms" schema:"TTL"`
	GrantedAt    Time   `json:"granted_at"`
	ExpiresAt    Time   `json:"expires_at"`
	// The latest `expires_at`, however often it is renewed: `max_hold_ms` of its policy after the grant; absent where
	// there is no limit.
	HoldUntil *Time `json:"hold_until,omitempty"`
	// The time to `hold_until` by the database's clock.
	HoldLeftMS *int64 `json:"hold_left_ms,omitempty" schema:"minimum=0"`
	// How long the acquire waited in the queue; 0 in the answer to a renewal.
	WaitedMS int64 `json:"waited_ms" schema:"minimum=0"`
	// The session that the lease lasts as long as, if it is in one.
	SessionID string          `json:"session_id,omitempty" schema:"SessionID"`
	Metadata  json.RawMessage `json:"metadata,omitempty" schema:"Metadata"`
	// What keeps the lease, if that is not PostgreSQL.
	Provider string `json:"provider,omitempty" schema:"enum=redis|redlock"`
}

// RenewRequest is the body of POST /v1/locks/{lock}/renew. All three of owner, lease_id and token must match.
type RenewRequest struct {
	OwnerID      string `json:"owner_id" schema:"OwnerID"`
	LeaseID      string `json:"lease_id" schema:"LeaseID"`
	FencingToken int64  `json:"fencing_token" schema:"Token"`
	// The lease's TTL from now on; absent: as it was.
	TTLMS *int64 `json:"ttl_ms,omitempty" schema:"TTL nullable"`
}

// ReleaseRequest is the body of POST /v1/locks/{lock}/release. All three must match.
type ReleaseRequest struct {
	OwnerID      string `json:"owner_id" schema:"OwnerID"`
	LeaseID      string `json:"lease_id" schema:"LeaseID"`
	FencingToken int64  `json:"fencing_token" schema:"Token"`
}

// Released is the answer to a release.
type Released struct {
	Released bool `json:"released" schema:"enum=true"`
}

// BreakRequest is the body of POST /v1/locks/{lock}/break.
type BreakRequest struct {
	// Kept with the lease: 1 to 1024 bytes without control characters.
	Reason string `json:"reason" schema:"minLength=1 maxLength=1024 pattern=^[^\\x00-\\x1f\\x7f-\\x9f]*$"`
}

// Broken is the answer to a break: the lease that it ended.
type Broken struct {
	Broken       bool   `json:"broken" schema:"enum=true"`
	Lock         string `json:"lock" schema:"Name"`
	OwnerID      string `json:"owner_id" schema:"OwnerID"`
	FencingToken int64  `json:"fencing_token" schema:"Token"`
}

// Lock is the state of a lock.
type Lock struct {
	Lock  string `json:"lock" schema:"Name"`
	State string `json:"state" schema:"LockState"`
	// The newest granted on the name; 0: none yet.
	FencingToken int64 `json:"fencing_token" schema:"TokenOrNone"`
	// Empty where the lock is free.
	Holders []LockHolder `json:"holders"`
	// The waiters, the next first; at most 1000, or `queue_max` of a list. Empty in a watch.
	Queue []Waiter `json:"queue" schema:"maxItems=1000"`
	// How many wait, also where `queue` shows fewer.
	QueueLength int64 `json:"queue_length" schema:"minimum=0"`
	// That of the name, at the same moment; only where a lock is asked for by its name, and absent where there is none
	// yet.
	Fence *Fence `json:"fence,omitempty"`
}

// LockHolder is a lease as others may see it, without its `lease_id`.
type LockHolder struct {
	OwnerID      string `json:"owner_id" schema:"OwnerID"`
	FencingToken int64  `json:"fencing_token" schema:"Token"`
	Mode         string `json:"mode" schema:"Mode"`
	Scope        string `json:"scope" schema:"Scope"`
	TTLMS        int64  `json:"ttl_ms" schema:"TTL"`
	GrantedAt    Time   `json:"granted_at"`
	ExpiresAt    Time   `json:"expires_at"`
	// Who acquired it; by SQL `sql:` and a role. Absent without authentication.
	Principal string `json:"principal,omitempty"`
	// The latest `expires_at`, however often it is renewed: `max_hold_ms` of its policy after the grant; absent where
	// there is no limit.
	HoldUntil *Time           `json:"hold_until,omitempty"`
	Metadata  json.RawMessage `json:"metadata,omitempty" schema:"Metadata"`
	// The provider of the lease; absent: PostgreSQL. For other providers, `expires_at` in a list is when PostgreSQL
	// stops listing the lease, up to 90 s after its end. A single lock shows the end that Redis reports.
	Provider string `json:"provider,omitempty" schema:"enum=redis|redlock"`
}

// LeaseInfo is a lease as others may see it, without its `lease_id`, also one that has ended.
type LeaseInfo struct {
	Lock string `json:"lock" schema:"Name"`
	LockHolder
	State string `json:"state" schema:"LeaseState"`
	// It lasts, or lasted, as long as a session.
	InSession bool `json:"in_session"`
	// How long the acquire waited in the queue; 0 in the answer to a renewal.
	WaitedMS int64 `json:"waited_ms" schema:"minimum=0"`
	// Absent while it runs.
	EndedAt *Time `json:"ended_at,omitempty"`
	// Absent while it runs.
	EndReason string `json:"end_reason,omitempty" schema:"enum=released|broken|expired"`
	// The reason that was given for breaking it.
	EndNote string `json:"end_note,omitempty" schema:"maxLength=1024"`
}

// LeaseInfos is a page of GET /v1/leases, the newest token first.
type LeaseInfos struct {
	Leases     []LeaseInfo `json:"leases" schema:"maxItems=1000"`
	NextCursor string      `json:"next_cursor,omitempty" schema:"Cursor"`
}

// Waiter is a waiter in the queue of a lock.
type Waiter struct {
	OwnerID  string `json:"owner_id" schema:"OwnerID"`
	Mode     string `json:"mode" schema:"Mode"`
	Scope    string `json:"scope" schema:"Scope"`
	QueuedAt Time   `json:"queued_at"`
	// Who sent the acquire; by SQL `sql:` and a role. Absent without authentication.
	Principal string `json:"principal,omitempty"`
}

// Locks is a page of GET /v1/locks, ordered by name unless another sort was asked for.
type Locks struct {
	Locks []Lock `json:"locks" schema:"maxItems=1000"`
	// How many locks there are on all pages, where `count` asked for it. Counted after the page was read.
	Total      *int64 `json:"total,omitempty" schema:"minimum=0"`
	NextCursor string `json:"next_cursor,omitempty" schema:"Cursor"`
}

// SessionRequest is the body of POST /v1/sessions.
type SessionRequest struct {
	OwnerID string `json:"owner_id" schema:"OwnerID"`
	// How long the session lasts without a keepalive: 100 ms to 24 h.
	TTLMS *int64 `json:"ttl_ms,omitempty" schema:"TTL nullable default=30000"`
	// Kept with the session: a JSON object of at most 4096 bytes, without `\u0000` in its texts.
	Metadata json.RawMessage `json:"metadata,omitempty" schema:"object nullable"`
}

// Session is one TTL and one heartbeat for any number of leases. SessionID is its owner's secret. POST /v1/sessions,
// the keepalive and GET answer a Session.
type Session struct {
	SessionID string `json:"session_id" schema:"SessionID"`
	OwnerID   string `json:"owner_id" schema:"OwnerID"`
	TTLMS     int64  `json:"ttl_ms" schema:"TTL"`
	CreatedAt Time   `json:"created_at"`
	ExpiresAt Time   `json:"expires_at"`
	State     string `json:"state" schema:"SessionState"`
	// The number of its live leases; only GET has it.
	Leases *int64 `json:"leases,omitempty" schema:"minimum=0"`
	// The owner's own data: a JSON object of at most 4096 bytes, without `\u0000` in its texts.
	Metadata json.RawMessage `json:"metadata,omitempty" schema:"object"`
}

// SessionEnded is the answer to DELETE /v1/sessions/{id}, also if it is sent again. The answer for an expired session
// is lease_lost.
type SessionEnded struct {
	Ended bool `json:"ended" schema:"enum=true"`
	// How many leases were released by it.
	Released int64 `json:"released" schema:"minimum=0"`
}

// SessionInfo is a session as others may see it, without its `session_id`.
type SessionInfo struct {
	// The first 8 digits of its `session_id`: enough to distinguish it.
	Handle    string `json:"handle" schema:"pattern=^[0-9a-f]{8}$"`
	OwnerID   string `json:"owner_id" schema:"OwnerID"`
	TTLMS     int64  `json:"ttl_ms" schema:"TTL"`
	CreatedAt Time   `json:"created_at"`
	ExpiresAt Time   `json:"expires_at"`
	State     string `json:"state" schema:"SessionState"`
	// How many run in it.
	Leases int64 `json:"leases" schema:"minimum=0"`
	// The owner's own data: a JSON object of at most 4096 bytes, without `\u0000` in its texts.
	Metadata json.RawMessage `json:"metadata,omitempty" schema:"object"`
	// Who made it. Absent without authentication.
	Principal string `json:"principal,omitempty"`
}

// SessionInfos is a page of GET /v1/sessions, the newest first.
type SessionInfos struct {
	Sessions   []SessionInfo `json:"sessions" schema:"maxItems=1000"`
	NextCursor string        `json:"next_cursor,omitempty" schema:"Cursor"`
}

// Waits is the answer to GET /v1/waits: the wait-for graph, the oldest waits first.
type Waits struct {
	Waits []WaitOf `json:"waits" schema:"maxItems=200"`
	// There are more waits, or more than 20 holders or 20 before in the way of one.
	Truncated bool `json:"truncated"`
}

// WaitOf is a waiter in the queue of a lock.
type WaitOf struct {
	OwnerID  string `json:"owner_id" schema:"OwnerID"`
	Lock     string `json:"lock" schema:"Name"`
	Mode     string `json:"mode" schema:"Mode"`
	Scope    string `json:"scope" schema:"Scope"`
	QueuedAt Time   `json:"queued_at"`
	// Who sent the acquire; by SQL `sql:` and a role. Absent without authentication.
	Principal string `json:"principal,omitempty"`
	// The blockers: the holders, then the waiters ahead, the nearest last.
	For []Blocker `json:"for" schema:"maxItems=40"`
}

// Blocker is an owner that a waiter waits for.
type Blocker struct {
	OwnerID string `json:"owner_id" schema:"OwnerID"`
	// Who sent the acquire; by SQL `sql:` and a role. Absent without authentication.
	Principal string `json:"principal,omitempty"`
	// `holds`: has a live lease. `before`: is ahead in the queue.
	Relation string `json:"relation" schema:"enum=holds|before"`
	// What it holds or waits for: another than is waited for where one of the two is a subtree.
	Lock string `json:"lock" schema:"Name"`
}

// The names of server-sent events. EventEnd is the last event if the gateway ends the stream.
const (
	EventState = "state"

	EventRejection = "rejection"
	EventMissed    = "missed"

	EventEnd = "end"
)

// WatchState is the data of the event "state" of a watch: the lock as GET shows it, without its Queue. ExpiresAt of a
// holder is as of this moment: a renewal is no change.
type WatchState struct {
	Lock
	// Greater than that of every state of the lock that you received before, also after a reconnect.
	Version int64 `json:"version" schema:"minimum=1"`
}

// RejectionsMissed is the data of the event "missed" of a stream of rejections: some that changed after Since have no
// event. Lists have them.
type RejectionsMissed struct {
	// Changes after it may not have been sent.
	Since Time `json:"since"`
}

// WatchEnd is the data of the event "end".
type WatchEnd struct {
	// `slow_reader`: the events were not read in time. `shutdown`: the gateway shuts down. `unavailable`: the database
	// is unreachable. `unauthenticated`: the credential has ended. Connect again.
	Reason string `json:"reason" schema:"enum=slow_reader|shutdown|unavailable|unauthenticated"`
}
