package api

// RejectionKind says what a rejection shows about its writer.
type RejectionKind string

// The kinds of rejections. Only a zombie has lost its lock.
const (
	// KindZombie: the lease of the token had ended, or a newer token was granted or used.
	KindZombie RejectionKind = "zombie"
	// KindNumbering: the same token with this number, or a greater one, was accepted before.
	KindNumbering RejectionKind = "numbering"
	// KindReader: the token is that of a shared lease, which can't write.
	KindReader RejectionKind = "reader"
	// KindConflict: the record has another version than the write requires.
	KindConflict RejectionKind = "conflict"
	// KindMisuse: no token, one that was never granted, the lease_id of another lease, or a truncate.
	KindMisuse RejectionKind = "misuse"
)

// Rejection is a rejected write, or a group of similar ones: the repeated writes of a zombie are one, with a count.
type Rejection struct {
	ID       int64  `json:"id"`
	Resource string `json:"resource"`
	// Key is that of the record; for the source "sql", the protected table.
	Key    string `json:"key,omitempty"`
	Code   Code   `json:"code"`
	Reason string `json:"reason,omitempty"`
	// Kind follows from Code and Reason.
	Kind RejectionKind `json:"kind"`
	// Token is the write's token; absent if it had none.
	Token        *int64 `json:"token,omitempty"`
	Sequence     *int64 `json:"sequence,omitempty"`
	GrantedToken int64  `json:"granted_token"`
	LastToken    int64  `json:"last_token"`
	LastSequence int64  `json:"last_sequence"`
	// SupersededBy is the newer token; absent unless the reason is "superseded".
	SupersededBy *int64 `json:"superseded_by,omitempty"`
	// OwnerID is the owner of the token's lease, while the database has it.
	OwnerID string `json:"owner_id,omitempty"`
	// LateMS is the time from the end of the lease to the latest of the writes.
	LateMS  *int64 `json:"late_ms,omitempty"`
	Source  string `json:"source"`
	Address string `json:"address,omitempty"`
	// Principal sent the writes; absent without authentication.
	Principal string `json:"principal,omitempty"`
	Count     int64  `json:"count"`
	FirstAt   Time   `json:"first_at"`
	LastAt    Time   `json:"last_at"`
}

// Rejections is a page of GET /v1/rejections.
type Rejections struct {
	Rejections []Rejection `json:"rejections"`
	NextCursor string      `json:"next_cursor,omitempty"`
}

// RejectionDetail is the answer to GET /v1/rejections/{id}.
type RejectionDetail struct {
	Rejection Rejection `json:"rejection"`
	// Lease is that of the token that was presented, while the database has it.
	Lease *LeaseInfo `json:"lease,omitempty"`
	// Successor is the lease of SupersededBy, while the database has it.
	Successor *LeaseInfo `json:"successor,omitempty"`
}

// RejectionSummary is the answer to GET /v1/rejections/summary.
type RejectionSummary struct {
	// Writes counts every rejected write, Groups each group of similar ones.
	Writes int64 `json:"writes"`
	Groups int64 `json:"groups"`
	// ByCode counts the rejected writes by code.
	ByCode map[Code]int64 `json:"by_code"`
	// ByKind counts the same writes by kind.
	ByKind map[RejectionKind]int64 `json:"by_kind"`
	// Owners and Resources are the 20 with the most writes, in that order. Writes of unknown owners count for none.
	Owners    []RejectedOwner    `json:"owners"`
	Resources []RejectedResource `json:"resources"`
}

// RejectionCount counts the rejections of one owner, or of one resource.
type RejectionCount struct {
	Writes int64 `json:"writes"`
	Groups int64 `json:"groups"`
	// LateMSMax is the greatest late_ms; absent if none has one.
	LateMSMax *int64 `json:"late_ms_max,omitempty"`
	LastAt    Time   `json:"last_at"`
}

// RejectedOwner is an owner with rejected writes.
type RejectedOwner struct {
	OwnerID string `json:"owner_id"`
	RejectionCount
}

// RejectedResource is a resource with rejected writes.
type RejectedResource struct {
	Resource string `json:"resource"`
	RejectionCount
}
