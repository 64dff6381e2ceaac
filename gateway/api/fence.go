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

// Policy is what holds for a name and all below it. Absent fields of a PUT are the defaults.
type Policy struct {
	// Prefix is the name; "" is every name.
	Prefix string `json:"prefix"`
	// Rule is "strict" (the default) or "same_token".
	Rule string `json:"rule"`
	// Authority is "builtin" (the default) or "external".
	Authority        string `json:"authority"`
	RequireLeaseID   bool   `json:"require_lease_id"`
	RequireLiveLease bool   `json:"require_live_lease"`
}

// PolicyRequest is the body of PUT /v1/policies/{prefix}.
type PolicyRequest struct {
	Rule             string `json:"rule,omitempty"`
	Authority        string `json:"authority,omitempty"`
	RequireLeaseID   bool   `json:"require_lease_id,omitempty"`
	RequireLiveLease bool   `json:"require_live_lease,omitempty"`
}

// Policies is the answer to GET /v1/policies, ordered by prefix.
type Policies struct {
	Policies []Policy `json:"policies"`
}

// Rejection is a write that was shut out, or several alike: a zombie that hammers is one with a count.
type Rejection struct {
	ID       int64  `json:"id"`
	Resource string `json:"resource"`
	Key      string `json:"key,omitempty"`
	Code     Code   `json:"code"`
	Reason   string `json:"reason,omitempty"`
	// Token is what was presented; absent where nothing was.
	Token        *int64 `json:"token,omitempty"`
	Sequence     *int64 `json:"sequence,omitempty"`
	GrantedToken int64  `json:"granted_token"`
	LastToken    int64  `json:"last_token"`
	LastSequence int64  `json:"last_sequence"`
	// OwnerID is whose lease the token belonged to, while that is remembered.
	OwnerID string `json:"owner_id,omitempty"`
	// LateMS is how long after its lease had ended the latest came.
	LateMS  *int64 `json:"late_ms,omitempty"`
	Door    string `json:"door"`
	Address string `json:"address,omitempty"`
	Count   int64  `json:"count"`
	FirstAt Time   `json:"first_at"`
	LastAt  Time   `json:"last_at"`
}

// Rejections is a page of GET /v1/rejections, newest first.
type Rejections struct {
	Rejections []Rejection `json:"rejections"`
	NextCursor string      `json:"next_cursor,omitempty"`
}

// Health is the answer to GET /healthz and GET /readyz.
type Health struct {
	Status string `json:"status"`
}
