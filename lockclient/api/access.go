package api

import "encoding/json"

// SignInRequest is the body of POST /v1/sign-in.
type SignInRequest struct {
	// Credential is what other clients send as Authorization: Bearer.
	Credential string `json:"credential"`
}

// SignIns is the answer to GET /v1/sign-in: how users of browsers can sign in, besides by a credential.
type SignIns struct {
	Issuers []SignInIssuer `json:"issuers"`
}

// SignInIssuer is an issuer by which users sign in.
type SignInIssuer struct {
	// Name is its name in the path: /v1/sign-in/NAME/start.
	Name string `json:"name"`
	// Label is its name for users.
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
	// Principal is its name.
	Principal string `json:"principal"`
	// Kind is how it has shown who it is; "anonymous" where the gateway asks for no credentials.
	Kind string `json:"kind"`
	// Grants are what it may do: a scope each, a colon and a name, which is empty for all names.
	Grants []string `json:"grants"`
	// ExpiresAt is the end of its credential, by the gateway's clock; absent: it has none.
	ExpiresAt *Time `json:"expires_at,omitempty"`
}

// KeyRequest is the body of POST /v1/keys.
type KeyRequest struct {
	// Principal is the name of the caller that the key is for, 1 to 200 bytes.
	Principal   string `json:"principal"`
	Description string `json:"description,omitempty"`
	// Grants are what the caller may do: each is scopes, a colon and a name, like "lock,write:jobs", for the name and all
	// names below it. Without a name it is for every name.
	Grants []string `json:"grants"`
	// LifetimeMS is the time to the end of the key, 1 s to 10 years; absent: it has none.
	LifetimeMS *int64 `json:"lifetime_ms,omitempty"`
}

// RotateRequest is the body of POST /v1/keys/{id}/rotate.
type RotateRequest struct {
	// OverlapMS is how long the old key still works, 0 to 30 days. Absent: 24 hours.
	OverlapMS *int64 `json:"overlap_ms,omitempty"`
	// LifetimeMS is the time to the end of the new key; absent: as long as the lifetime of the old one was.
	LifetimeMS *int64 `json:"lifetime_ms,omitempty"`
}

// Key is an API key as administrators see it.
type Key struct {
	ID          string   `json:"id"`
	Principal   string   `json:"principal"`
	Description string   `json:"description"`
	Grants      []string `json:"grants"`
	CreatedAt   Time     `json:"created_at"`
	CreatedBy   string   `json:"created_by"`
	ExpiresAt   *Time    `json:"expires_at,omitempty"`
	RevokedAt   *Time    `json:"revoked_at,omitempty"`
	// LastUsedAt is about a minute late.
	LastUsedAt *Time `json:"last_used_at,omitempty"`
}

// NewKey is the answer to POST /v1/keys and POST /v1/keys/{id}/rotate. Nobody can get the key again.
type NewKey struct {
	Key

	// Secret is the key itself, to be sent as Authorization: Bearer.
	Secret string `json:"key"`
}

// Keys is the answer to GET /v1/keys, the newest first.
type Keys struct {
	Keys       []Key  `json:"keys"`
	NextCursor string `json:"next_cursor,omitempty"`
}

// AuditEntry is an action of an administrator.
type AuditEntry struct {
	ID int64 `json:"id"` // a newer entry has a greater one
	At Time  `json:"at"`
	// Principal is who did it; "sql:" and a role for an action by SQL.
	Principal string `json:"principal"`
	// Address is that of the client; "local" for a local connection to the database.
	Address string `json:"address"`
	// Action is what was done, like "policy_set" or "lease_broken".
	Action string `json:"action"`
	// Name is the lock, the resource, or the prefix of the policy; absent where the action was on none, or on all names.
	Name string `json:"name,omitempty"`
	// Details is a JSON object. Its members depend on the action.
	Details json.RawMessage `json:"details"`
}

// AuditSeals is a page of GET /v1/audit/seals, the oldest seal first.
type AuditSeals struct {
	Seals []AuditSeal `json:"seals"`
	// More reports whether there may be more seals after these.
	More bool `json:"more"`
	// Unsealed is how many entries are in no seal yet; 1000: as many, or more.
	Unsealed int64 `json:"unsealed"`
}

// AuditSeal has the hashes of some entries of the audit log, and that of the seal before it.
type AuditSeal struct {
	Seal int64 `json:"seal"`  // 1 is the first one
	AtUS int64 `json:"at_us"` // when it was made, in microseconds since 1970
	// Previous is the hash of the seal before; "" in the first one.
	Previous string `json:"previous"`
	// Hash is "" where entries say that they are of this seal, which does not exist.
	Hash    string        `json:"hash"`
	Entries []SealedEntry `json:"entries"`
}

// SealedEntry is an entry of the audit log, as its seal has it and as it is.
type SealedEntry struct {
	ID   int64  `json:"id"`
	AtUS int64  `json:"at_us,omitempty"` // in microseconds since 1970; 0: the entry may be deleted at any time
	Hash string `json:"hash,omitempty"`  // the SHA-256 of Text; "": the seal does not have this entry
	Text string `json:"text,omitempty"`  // the JSON of the entry; "": it was deleted
}

// Audit is a page of GET /v1/audit, the newest entry first.
type Audit struct {
	Entries    []AuditEntry `json:"entries"`
	NextCursor string       `json:"next_cursor,omitempty"`
}
