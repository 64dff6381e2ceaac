package api

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
