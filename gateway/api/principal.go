package api

// SignInRequest is the body of POST /v1/sign-in.
type SignInRequest struct {
	// Credential is what other clients send as Authorization: Bearer.
	Credential string `json:"credential"`
}

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
