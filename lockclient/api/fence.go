package api

// Fence is the answer to GET /v1/resources/{resource}/fence.
type Fence struct {
	Resource string `json:"resource" schema:"Name"`
	// The newest token granted on the name; 0 where another lock service issues them.
	GrantedToken int64 `json:"granted_token" schema:"TokenOrNone"`
	// Whether that grant may still write.
	Open bool `json:"open"`
	// Of the last accepted write; 0: there was none.
	LastToken int64 `json:"last_token" schema:"TokenOrNone"`
	// Of the last accepted write; 0 also where it was not numbered.
	LastSequence int64 `json:"last_sequence" schema:"Sequence"`
	// What holds for the resource: the policy of the longest prefix that has one, or the defaults, with prefix "".
	Policy Policy `json:"policy"`
}

// FenceRequest is the body of PUT /v1/resources/{resource}/fence: the token and the sequence that should count as the
// last accepted ones.
type FenceRequest struct {
	// What should count as the token of the last accepted write; 0: every token is admitted.
	LastToken *int64 `json:"last_token" schema:"TokenOrNone"`
	// Its sequence.
	LastSequence int64 `json:"last_sequence,omitempty" schema:"Sequence nullable default=0"`
	// Logged by the gateway: 1 to 1024 bytes without control characters.
	Reason string `json:"reason" schema:"minLength=1 maxLength=1024 pattern=^[^\\x00-\\x1f\\x7f-\\x9f]*$"`
}

// FenceSet is the answer to a FenceRequest, with the numbers that it replaced.
type FenceSet struct {
	Resource     string `json:"resource" schema:"Name"`
	LastToken    int64  `json:"last_token" schema:"TokenOrNone"`
	LastSequence int64  `json:"last_sequence" schema:"Sequence"`
	// What counted before, like previous_sequence; 0 where there was no fence.
	PreviousToken    int64 `json:"previous_token" schema:"TokenOrNone"`
	PreviousSequence int64 `json:"previous_sequence" schema:"Sequence"`
}

// Policy applies to a name and all names below it. Absent fields of a PUT are the defaults.
type Policy struct {
	Prefix    string `json:"prefix" schema:"PolicyPrefix"`
	Rule      string `json:"rule" schema:"Rule"`
	Authority string `json:"authority" schema:"Authority"`
	// A write needs the `lease_id` beside the token.
	RequireLeaseID bool `json:"require_lease_id"`
	// A write needs a lease that has not expired, even if nobody has replaced it.
	RequireLiveLease bool `json:"require_live_lease"`
	// The longest time from the grant of a lease to its end, however often it is renewed. Absent: no limit.
	MaxHoldMS int64 `json:"max_hold_ms,omitempty" schema:"minimum=100 maximum=31536000000"`
	// What keeps the leases; absent: what the gateway was started with (`--leases`). Tokens and fences are always
	// PostgreSQL's.
	Leases string `json:"leases,omitempty" schema:"enum=postgres|redis|redlock"`
	// An acquire needs an `owner_id` that is the name of the caller's principal, or begins with that and `/`. It does
	// not bind callers without authentication. Absent: false.
	RequirePrincipalOwner bool `json:"require_principal_owner,omitempty"`
}

// PolicyRequest is the body of PUT /v1/policies/{prefix}.
type PolicyRequest struct {
	// As in a Policy.
	Rule string `json:"rule,omitempty" schema:"Rule nullable default=strict"`
	// As in a Policy.
	Authority string `json:"authority,omitempty" schema:"Authority nullable default=builtin"`
	// As in a Policy. Not with authority `external`.
	RequireLeaseID bool `json:"require_lease_id,omitempty" schema:"nullable default=false"`
	// As in a Policy. Not with authority `external`.
	RequireLiveLease bool `json:"require_live_lease,omitempty" schema:"nullable default=false"`
	// As in a Policy; a running lease gets it by its next renewal, or its session's next keepalive. Absent: no limit.
	// Not with authority `external`.
	MaxHoldMS *int64 `json:"max_hold_ms,omitempty" schema:"minimum=100 maximum=31536000000 nullable"`
	// As in a Policy. Not with authority `external`; `redis` and `redlock` not with `require_live_lease`.
	Leases string `json:"leases,omitempty" schema:"enum=postgres|redis|redlock nullable"`
	// As in a Policy. Not with authority `external`.
	RequirePrincipalOwner bool `json:"require_principal_owner,omitempty" schema:"nullable default=false"`
}

// Policies is the answer to GET /v1/policies, ordered by prefix.
type Policies struct {
	Policies []Policy `json:"policies" schema:"maxItems=10000"`
}

// Table is a protected table: its rows can be written only under the fence of their resource.
type Table struct {
	// With its schema, not quoted. Rejections of the source `sql` have it as their `key`.
	Table string `json:"table"`
	// Names the resource of a row: in `accounts/{id}`, `id` is a column.
	Template string `json:"template"`
	// `observe`: nothing is rejected, and what would be is recorded.
	Mode string `json:"mode" schema:"enum=enforce|observe"`
	// `free`: a new row needs no token.
	Inserts     string `json:"inserts" schema:"enum=guarded|free"`
	ProtectedAt Time   `json:"protected_at"`
	// What kept rows from being checked, such as a disabled trigger, at `checked_at`, perhaps with the SQL that repairs
	// it; absent: nothing.
	Problem string `json:"problem,omitempty"`
	// When a gateway looked at the triggers last, some 30 s ago; absent: not yet.
	CheckedAt *Time `json:"checked_at,omitempty"`
	// An estimate, as of the last vacuum or analyze; absent before the first.
	Rows *int64 `json:"rows,omitempty" schema:"minimum=0"`
	// The rejections by SQL of groups that were last seen in the last 24 hours: by the triggers of the table, and by
	// `fence.guard` and `fence.try_guard` on a resource of its template, which other tables may have, too.
	Rejections int64 `json:"rejections" schema:"minimum=0"`
}

// Tables is a page of GET /v1/tables, ordered by name.
type Tables struct {
	Tables     []Table `json:"tables" schema:"maxItems=1000"`
	NextCursor string  `json:"next_cursor,omitempty" schema:"Cursor"`
}

// SQLRole is a role of the database with the rights of an application.
type SQLRole struct {
	// Its name in PostgreSQL.
	Role string `json:"role"`
	// The names that it may use by SQL, with all names below each. Absent: all names.
	Prefixes *[]string `json:"prefixes,omitempty" schema:"items=Name"`
}

// SQLRoles is the answer to GET /v1/sql-roles, ordered by role.
type SQLRoles struct {
	SQLRoles []SQLRole `json:"sql_roles" schema:"maxItems=1000"`
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
	// Greater than those of all that began earlier.
	ID       int64  `json:"id" schema:"minimum=1"`
	Resource string `json:"resource" schema:"Name"`
	// Of the latest; absent where a transaction was refused for its token. Of the source `sql`, the protected table
	// with its schema; absent for `fence.try_guard`.
	Key    string        `json:"key,omitempty" schema:"Name"`
	Code   Code          `json:"code" schema:"RejectionCode"`
	Reason string        `json:"reason,omitempty" schema:"StaleReason"`
	Kind   RejectionKind `json:"kind"`
	// That was presented; absent where none was.
	Token *int64 `json:"token,omitempty" schema:"Token"`
	// Of the latest.
	Sequence *int64 `json:"sequence,omitempty" schema:"Sequence"`
	// Of the fence, at the latest of the writes; 0 in a `version_mismatch`, like the next two.
	GrantedToken int64 `json:"granted_token" schema:"TokenOrNone"`
	LastToken    int64 `json:"last_token" schema:"TokenOrNone"`
	LastSequence int64 `json:"last_sequence" schema:"Sequence"`
	// The newer token; absent unless the reason is `superseded`.
	SupersededBy *int64 `json:"superseded_by,omitempty" schema:"Token"`
	// The owner of the token's lease, while the database has it.
	OwnerID string `json:"owner_id,omitempty" schema:"OwnerID"`
	// The time from the end of the lease to the latest of the writes. By the gateway's clock, so it may be a little
	// off; of writes by SQL by the database's.
	LateMS *int64 `json:"late_ms,omitempty"`
	// A single write, a write of an array, a transaction, or plain SQL.
	Source string `json:"source" schema:"enum=http|bulk|transaction|sql"`
	// Of the client, as the connection has it. Absent for a write by SQL whose transaction was rolled back.
	Address string `json:"address,omitempty"`
	// Who sent the writes; by SQL `sql:` and a role. Absent without authentication.
	Principal string `json:"principal,omitempty"`
	// Whether the writes passed: they are by SQL, to a table of the mode `observe`. Absent: they were rejected.
	Observed bool  `json:"observed,omitempty"`
	Count    int64 `json:"count" schema:"minimum=1"`
	FirstAt  Time  `json:"first_at"`
	LastAt   Time  `json:"last_at"`
}

// Rejections is a page of GET /v1/rejections.
type Rejections struct {
	Rejections []Rejection `json:"rejections" schema:"maxItems=1000"`
	NextCursor string      `json:"next_cursor,omitempty" schema:"Cursor"`
}

// RejectionDetail is the answer to GET /v1/rejections/{id}.
type RejectionDetail struct {
	Rejection Rejection `json:"rejection"`
	// Of the token that was presented, while the database has it.
	Lease *LeaseInfo `json:"lease,omitempty"`
	// Of `superseded_by`, while the database has it.
	Successor *LeaseInfo `json:"successor,omitempty"`
}

// RejectionSummary is the answer to GET /v1/rejections/summary.
type RejectionSummary struct {
	// All writes that were rejected.
	Writes int64 `json:"writes" schema:"minimum=0"`
	// Those alike counted once.
	Groups int64 `json:"groups" schema:"minimum=0"`
	// How many writes, by code: `token_required`, `token_unknown`, `token_stale`, `lease_mismatch`, `lease_expired`,
	// `version_mismatch`, `token_reused`, `truncate`. Codes without any are absent.
	ByCode map[Code]int64 `json:"by_code"`
	// The same writes by kind. Kinds without any are absent.
	ByKind map[RejectionKind]int64 `json:"by_kind"`
	// Those with the most writes. Writes of unknown owners count for none.
	Owners []RejectedOwner `json:"owners" schema:"maxItems=20"`
	// Those with the most writes.
	Resources []RejectedResource `json:"resources" schema:"maxItems=20"`
}

// RejectionCount counts the rejections of one owner, or of one resource.
type RejectionCount struct {
	Writes int64 `json:"writes" schema:"minimum=1"`
	Groups int64 `json:"groups" schema:"minimum=1"`
	// The greatest `late_ms` among its groups; absent where there is none.
	LateMSMax *int64 `json:"late_ms_max,omitempty"`
	LastAt    Time   `json:"last_at"`
}

// RejectedOwner is an owner with rejected writes.
type RejectedOwner struct {
	OwnerID string `json:"owner_id" schema:"OwnerID"`
	RejectionCount
}

// RejectedResource is a resource with rejected writes.
type RejectedResource struct {
	Resource string `json:"resource" schema:"Name"`
	RejectionCount
}
