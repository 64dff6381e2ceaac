package api

import "encoding/json"

// SignInRequest is the body of POST /v1/sign-in.
type SignInRequest struct {
	// What other clients send as `Authorization: Bearer`.
	Credential string `json:"credential" schema:"maxLength=3800"`
}

// SignIns is the answer to GET /v1/sign-in: how users of browsers can sign in, besides by a credential.
type SignIns struct {
	Issuers []SignInIssuer `json:"issuers"`
}

// SignInIssuer is an issuer by which users sign in.
type SignInIssuer struct {
	// Its name in the path: `/v1/sign-in/{issuer}/start`.
	Name string `json:"name"`
	// Its name for users.
	Label string `json:"label"`
}

// SignInFailure says why nobody has signed in by an issuer. It is in the address of the dashboard: ?sign-in=FAILURE.
type SignInFailure string

// The failures.
const (
	// SignInDenied: the user has refused, or the issuer does not let the user in.
	SignInDenied SignInFailure = "denied"
	// SignInFailed: the issuer has failed, or has refused the gateway's request.
	SignInFailed SignInFailure = "failed"
	// SignInExpired: it has taken too long, was begun elsewhere or finished before.
	SignInExpired SignInFailure = "expired"
	// SignInUnreachable: the gateway can't ask the issuer.
	SignInUnreachable SignInFailure = "unreachable"
	// SignInRefused: the gateway does not accept the issuer's token.
	SignInRefused SignInFailure = "refused"
	// SignInTooLong: the issuer's token does not fit into a cookie.
	SignInTooLong SignInFailure = "too_long"
)

// Principal is the answer to GET /v1/whoami and POST /v1/sign-in: the caller, and what it may do.
type Principal struct {
	// Its name.
	Principal string `json:"principal"`
	// How it has shown who it is. `anonymous`: the gateway asks for no credentials.
	Kind string `json:"kind"`
	// What it may do: a scope each, a colon and a name, which is empty for all names.
	Grants []string `json:"grants"`
	// The end of the credential, by the gateway's clock; absent: it has none.
	ExpiresAt *Time `json:"expires_at,omitempty"`
}

// KeyRequest is the body of POST /v1/keys.
type KeyRequest struct {
	// The name of the caller that the key is for. It has no hidden characters: no control, zero-width or bidirectional
	// ones, and no space but U+0020.
	Principal string `json:"principal" schema:"minLength=1 maxLength=200"`
	// Any text without hidden characters.
	Description string `json:"description,omitempty" schema:"maxLength=1000"`
	// Each is scopes, a colon and a name: for the name and all names below it. Without a name it is for every name. The
	// scopes are `lock`, `write`, `read`, `observe` and `admin`; `all` stands for the five.
	Grants []string `json:"grants" schema:"minItems=1 maxItems=100"`
	// The time to the end of the key; absent: it has none.
	LifetimeMS *int64 `json:"lifetime_ms,omitempty" schema:"minimum=1000 maximum=315360000000 nullable"`
}

// RotateRequest is the body of POST /v1/keys/{id}/rotate.
type RotateRequest struct {
	// How long the old key still works.
	OverlapMS *int64 `json:"overlap_ms,omitempty" schema:"minimum=0 maximum=2592000000 nullable default=86400000"`
	// The time to the end of the new key; absent: as long as the lifetime of the old one was.
	LifetimeMS *int64 `json:"lifetime_ms,omitempty" schema:"minimum=1000 maximum=315360000000 nullable"`
}

// Key is an API key, without the key itself.
type Key struct {
	ID          string `json:"id" schema:"KeyID"`
	Principal   string `json:"principal"`
	Description string `json:"description"`
	// One scope each, without those that another one covers.
	Grants    []string `json:"grants" schema:"minItems=1 maxItems=500"`
	CreatedAt Time     `json:"created_at"`
	// The principal that made it.
	CreatedBy string `json:"created_by"`
	ExpiresAt *Time  `json:"expires_at,omitempty"`
	RevokedAt *Time  `json:"revoked_at,omitempty"`
	// About a minute late.
	LastUsedAt *Time `json:"last_used_at,omitempty"`
}

// NewKey is the answer to POST /v1/keys and POST /v1/keys/{id}/rotate. Nobody can get the key again.
type NewKey struct {
	Key

	// The key itself, a secret, to be sent as `Authorization: Bearer`.
	Secret string `json:"key" schema:"pattern=^fgk_[0-9A-Za-z]{10}_[0-9A-Za-z]{49}$"`
}

// Keys is the answer to GET /v1/keys, the newest first.
type Keys struct {
	Keys       []Key  `json:"keys" schema:"maxItems=1000"`
	NextCursor string `json:"next_cursor,omitempty" schema:"Cursor"`
}

// AuditEntry is an action of an administrator.
type AuditEntry struct {
	ID int64 `json:"id" schema:"minimum=1"`
	At Time  `json:"at"`
	// Who did it. By SQL: `sql:` and the role of the connection.
	Principal string `json:"principal"`
	// Of the client; `local` for a local connection to the database.
	Address string `json:"address"`
	// What was done.
	Action string `json:"action" schema:"AuditAction"`
	// The lock, the resource, or the prefix of the policy; absent where the action was on none, or on all names.
	Name string `json:"name,omitempty" schema:"Name"`
	// Depends on the action: what was set (`before` is what was set until then), whose lease was broken, which key or
	// table it was; `reason` and `count` of refused accesses. Never a secret.
	Details json.RawMessage `json:"details" schema:"object"`
}

// AuditSeals is a page of GET /v1/audit/seals, the oldest seal first.
type AuditSeals struct {
	Seals []AuditSeal `json:"seals" schema:"maxItems=20"`
	// There may be more seals after these.
	More bool `json:"more"`
	// Entries that are in no seal yet; 1000 stands for as many, or more.
	Unsealed int64 `json:"unsealed"`
}

// AuditSeal has the hashes of some entries of the audit log, and that of the seal before it.
type AuditSeal struct {
	Seal int64 `json:"seal" schema:"minimum=1"`
	// When it was made, in microseconds since 1970.
	AtUS int64 `json:"at_us"`
	// The hash of the seal before; empty in the first one.
	Previous string `json:"previous"`
	// Empty where entries say that they are of this seal, which does not exist: the log was changed.
	Hash    string        `json:"hash"`
	Entries []SealedEntry `json:"entries" schema:"maxItems=1100"`
}

// SealedEntry is an entry of the audit log, as its seal has it and as it is.
type SealedEntry struct {
	ID int64 `json:"id" schema:"minimum=1"`
	// Its time, in microseconds since 1970; absent where the entry may be deleted at any time: its principal is
	// `anonymous`, or its action `access_refused`.
	AtUS int64 `json:"at_us,omitempty"`
	// The SHA-256 of the text; absent where the seal does not have this entry: the log was changed.
	Hash string `json:"hash,omitempty"`
	// The entry as JSON, to the byte as it was hashed; absent where it was deleted.
	Text string `json:"text,omitempty"`
}

// Audit is a page of GET /v1/audit, the newest entry first.
type Audit struct {
	Entries    []AuditEntry `json:"entries" schema:"maxItems=1000"`
	NextCursor string       `json:"next_cursor,omitempty" schema:"Cursor"`
}
