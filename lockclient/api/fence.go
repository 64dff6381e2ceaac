package api

// Fence is the answer to GET /v1/resources/{resource}/fence.
type Fence struct {
	Resource     string `json:"resource"`
	GrantedToken int64  `json:"granted_token"`
	Open         bool   `json:"open"`
	LastToken    int64  `json:"last_token"`
	LastSequence int64  `json:"last_sequence"`
	Policy       Policy `json:"policy"`
}

// FenceRequest is the body of PUT /v1/resources/{resource}/fence: the token and the sequence that should count as the
// last accepted ones.
type FenceRequest struct {
	// LastToken is required, 0 to 2^53-1. 0 admits every token.
	LastToken    *int64 `json:"last_token"`
	LastSequence int64  `json:"last_sequence"`
	// Reason is logged: 1 to 1024 bytes without control characters.
	Reason string `json:"reason"`
}

// FenceSet is the answer to a FenceRequest, with the numbers that it replaced.
type FenceSet struct {
	Resource         string `json:"resource"`
	LastToken        int64  `json:"last_token"`
	LastSequence     int64  `json:"last_sequence"`
	PreviousToken    int64  `json:"previous_token"`
	PreviousSequence int64  `json:"previous_sequence"`
}

// Policy applies to a name and all names below it. Absent fields of a PUT are the defaults.
type Policy struct {
	// Prefix is the name; "" is every name.
	Prefix string `json:"prefix"`
	// Rule is "strict" (the default) or "same_token".
	Rule string `json:"rule"`
	// Authority is "builtin" (the default) or "external".
	Authority        string `json:"authority"`
	RequireLeaseID   bool   `json:"require_lease_id"`
	RequireLiveLease bool   `json:"require_live_lease"`
	// MaxHoldMS is the longest time from the grant of a lease to its end, however often it is renewed; 0 (absent): no
	// limit.
	MaxHoldMS int64 `json:"max_hold_ms,omitempty"`
	// Leases is what keeps the leases: "postgres", "redis" or "redlock"; absent: the gateway's default.
	Leases string `json:"leases,omitempty"`
	// RequirePrincipalOwner demands of an acquire an owner_id that is the name of the caller's principal, or begins with
	// that and a slash. It does not bind callers of a gateway without authentication.
	RequirePrincipalOwner bool `json:"require_principal_owner,omitempty"`
}

// PolicyRequest is the body of PUT /v1/policies/{prefix}.
type PolicyRequest struct {
	Rule             string `json:"rule,omitempty"`
	Authority        string `json:"authority,omitempty"`
	RequireLeaseID   bool   `json:"require_lease_id,omitempty"`
	RequireLiveLease bool   `json:"require_live_lease,omitempty"`
	// MaxHoldMS is 100 to 31536000000 (365 days); absent: no limit.
	MaxHoldMS *int64 `json:"max_hold_ms,omitempty"`
	Leases    string `json:"leases,omitempty"`
	// RequirePrincipalOwner is that of a Policy.
	RequirePrincipalOwner bool `json:"require_principal_owner,omitempty"`
}

// Policies is the answer to GET /v1/policies, ordered by prefix.
type Policies struct {
	Policies []Policy `json:"policies"`
}

// Table is a protected table: its rows can be written only under the fence of their resource.
type Table struct {
	// Table is the name with its schema: public.accounts. Rejections of source "sql" have it as their Key.
	Table string `json:"table"`
	// Template names the resource of a row: accounts/{id}, where id is a column.
	Template string `json:"template"`
	// Mode is enforce, or observe: nothing is rejected, and what would be is recorded.
	Mode string `json:"mode"`
	// Inserts is guarded, or free: a new row needs no token.
	Inserts     string `json:"inserts"`
	ProtectedAt Time   `json:"protected_at"`
	// Problem says what kept rows from being checked, such as a disabled trigger, at CheckedAt; absent: nothing.
	Problem string `json:"problem,omitempty"`
	// CheckedAt is when a gateway looked at the triggers last, some 30 s ago; absent: not yet.
	CheckedAt *Time `json:"checked_at,omitempty"`
	// Rows is an estimate, as of the last vacuum or analyze; absent before the first.
	Rows *int64 `json:"rows,omitempty"`
	// Rejections counts the recorded rejections of the groups that were last seen in the last 24 hours. Those that rolled
	// back their transaction are only counted in the metric fencegate_sql_rejections_total.
	Rejections int64 `json:"rejections"`
}

// Tables is a page of GET /v1/tables, ordered by name.
type Tables struct {
	Tables     []Table `json:"tables"`
	NextCursor string  `json:"next_cursor,omitempty"`
}

// SQLRole is a role of the database with the rights of an application.
type SQLRole struct {
	Role string `json:"role"`
	// Prefixes are the names that it may use by SQL, with all names below each; absent: all names.
	Prefixes *[]string `json:"prefixes,omitempty"`
}

// SQLRoles is the answer to GET /v1/sql-roles, ordered by role.
type SQLRoles struct {
	SQLRoles []SQLRole `json:"sql_roles"`
}

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
