// Package signin is the part of the API by which callers learn who they are, and users of browsers sign in.
package signin

import (
	"context"
	"net/http"
	"time"

	"github.com/gorilla/mux"

	"github.com/fencegate/fencegate/gateway/auth"
	"github.com/fencegate/fencegate/gateway/endpoint"
	"github.com/fencegate/fencegate/gateway/limits"
	"github.com/fencegate/fencegate/internal/access"
	"github.com/fencegate/fencegate/lockclient/api"
	"github.com/fencegate/fencegate/store"
)

const (
	// signInMax is how long a browser stays signed in.
	signInMax = 8 * time.Hour
	// CookieBytesMax is the longest credential for a cookie: browsers drop cookies of more than 4,096 bytes.
	CookieBytesMax = 3800
)

// Endpoints are the callers themselves, and how users of browsers sign in.
type Endpoints struct {
	*endpoint.Server

	Issuers   *auth.Directory
	SignIns   *limits.Limits // of addresses that sign in by an issuer
	Exchanges *limits.Caller // all sign-ins together, as the issuers see them
}

// New returns the endpoints of sign-in. issuers has the issuers by which users of browsers sign in; nil: there are none.
func New(server *endpoint.Server, issuers *auth.Directory) *Endpoints {
	return &Endpoints{
		Server: server, Issuers: issuers, SignIns: limits.New(limits.Config{RequestsPerSecond: SignInsPerSecond}),
		Exchanges: limits.New(limits.Config{RequestsPerSecond: exchangesPerSecond}).OfAddress(""),
	}
}

// Routes adds the routes of sign-in.
func (e *Endpoints) Routes(router *mux.Router) {
	e.Route(router, "/v1/whoami", endpoint.Methods{"GET": e.whoAmI})
	e.Route(router, "/v1/sign-in",
		endpoint.Methods{"GET": e.listSignIns, "POST": endpoint.WithBody(e.Server, endpoint.NoName, e.signIn), "DELETE": e.signOut})
	e.Route(router, "/v1/sign-in/{issuer}/start", endpoint.Methods{"GET": e.startSignIn})
	e.Route(router, "/v1/sign-in/{issuer}/callback", endpoint.Methods{"GET": e.finishSignIn})
}

func (e *Endpoints) whoAmI(w *endpoint.Answer, r *http.Request) error {
	_, err := endpoint.Query(r)
	w.Header().Set("Cache-Control", "no-store")
	return endpoint.AnswerJSON(w, principalAnswer(w.Principal), err)
}

// signIn checks a credential and has the browser keep it in a cookie. The gateway keeps nothing: each request is judged
// by the credential in it, so what ends a key ends the sign-in, and every gateway knows it.
func (e *Endpoints) signIn(_ context.Context, a endpoint.Action[store.Name, api.SignInRequest]) (any, error) {
	switch {
	case e.CrossOrigin.Check(a.R) != nil:
		return nil, endpoint.OtherOrigin()
	case e.Auth == nil:
		return nil, endpoint.Invalid("This gateway asks for no credentials.")
	case len(a.Body.Credential) > CookieBytesMax:
		return nil, endpoint.Invalid("The credential has more than %d bytes; browsers keep no such cookie.", CookieBytesMax)
	}
	shown := &http.Request{Header: http.Header{"Authorization": {endpoint.BearerScheme + a.Body.Credential}}}
	principal, reason := e.Auth.Authenticate(shown)
	if reason != auth.Accepted {
		return nil, e.CountFailure(a.R, e.Unauthenticated(a.R, reason))
	}
	e.keepCredential(a.W, a.R, a.Body.Credential, principal)
	return principalAnswer(principal), nil
}

// keepCredential has the browser keep a credential that was accepted.
func (e *Endpoints) keepCredential(w http.ResponseWriter, r *http.Request, credential string, of *access.Principal) {
	lifetime := signInMax
	if !of.ExpiresAt.IsZero() {
		lifetime = min(lifetime, time.Until(of.ExpiresAt))
	}
	e.setCookie(w, r, credential, lifetime)
}

func (e *Endpoints) signOut(w *endpoint.Answer, r *http.Request) error {
	if _, err := endpoint.Query(r); err != nil {
		return err
	}
	if e.CrossOrigin.Check(r) != nil {
		return endpoint.OtherOrigin()
	}
	e.setCookie(w, r, "", -1)
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// setCookie has the browser keep a credential for a time, or drop it.
func (e *Endpoints) setCookie(w http.ResponseWriter, r *http.Request, credential string, lifetime time.Duration) {
	secure := e.IsSecure(r)
	age := int(lifetime / time.Second)
	if age <= 0 {
		age = -1 // drop it
	}
	http.SetCookie(w, &http.Cookie{ //nolint:gosec // without TLS it can't be Secure
		Name: endpoint.CookieNameFor(secure), Value: credential, Path: "/", MaxAge: age,
		Secure: secure, HttpOnly: true, SameSite: http.SameSiteStrictMode,
	})
	w.Header().Set("Cache-Control", "no-store")
}

func principalAnswer(principal *access.Principal) api.Principal {
	return api.Principal{
		Principal: principal.Name, Kind: string(principal.Kind), Grants: access.Texts(principal.Grants()),
		ExpiresAt: endpoint.OptionalTime(principal.ExpiresAt),
	}
}
