package api

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
