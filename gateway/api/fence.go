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

// Health is the answer to GET /healthz and GET /readyz.
type Health struct {
	Status string `json:"status"`
}
