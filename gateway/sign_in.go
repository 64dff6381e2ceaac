package gateway

import (
	"context"
	"net/http"
	"time"

	"github.com/gorilla/mux"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/gateway/auth"
	"github.com/fencegate/fencegate/internal/access"
	"github.com/fencegate/fencegate/store"
)

const (
	// signInMax is how long a browser stays signed in.
	signInMax = 8 * time.Hour
	// cookieBytesMax is the longest credential for a cookie: browsers drop cookies of more than 4,096 bytes.
	cookieBytesMax = 3800
)

func (g *Gateway) principalRoutes(router *mux.Router) {
	g.route(router, "/v1/whoami", methods{"GET": g.whoAmI})
	g.route(router, "/v1/sign-in",
		methods{"GET": g.listSignIns, "POST": acting(g, noName, g.signIn), "DELETE": g.signOut})
	g.route(router, "/v1/sign-in/{issuer}/start", methods{"GET": g.startSignIn})
	g.route(router, "/v1/sign-in/{issuer}/callback", methods{"GET": g.finishSignIn})
}

func (g *Gateway) whoAmI(w *answerWriter, r *http.Request) error {
	_, err := query(r)
	w.Header().Set("Cache-Control", "no-store")
	return answerJSON(w, principalAnswer(w.principal), err)
}

// signIn checks a credential and has the browser keep it in a cookie. The gateway keeps nothing: each request is judged
// by the credential in it, so what ends a key ends the sign-in, and every gateway knows it.
func (g *Gateway) signIn(_ context.Context, a action[store.Name, api.SignInRequest]) (any, error) {
	switch {
	case g.crossOrigin.Check(a.r) != nil:
		return nil, otherOrigin()
	case g.config.Auth == nil:
		return nil, invalid("This gateway asks for no credentials.")
	case len(a.body.Credential) > cookieBytesMax:
		return nil, invalid("The credential has more than %d bytes; browsers keep no such cookie.", cookieBytesMax)
	}
	shown := &http.Request{Header: http.Header{"Authorization": {bearerScheme + a.body.Credential}}}
	principal, reason := g.config.Auth.Authenticate(shown)
	if reason != auth.Accepted {
		return nil, g.countFailure(a.r, g.unauthenticated(reason))
	}
	g.keepCredential(a.w, a.r, a.body.Credential, principal)
	return principalAnswer(principal), nil
}

// keepCredential has the browser keep a credential that was accepted.
func (g *Gateway) keepCredential(w http.ResponseWriter, r *http.Request, credential string, of *access.Principal) {
	lifetime := signInMax
	if !of.ExpiresAt.IsZero() {
		lifetime = min(lifetime, time.Until(of.ExpiresAt))
	}
	g.setCookie(w, r, credential, lifetime)
}

func (g *Gateway) signOut(w *answerWriter, r *http.Request) error {
	if _, err := query(r); err != nil {
		return err
	}
	if g.crossOrigin.Check(r) != nil {
		return otherOrigin()
	}
	g.setCookie(w, r, "", -1)
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// setCookie has the browser keep a credential for a time, or drop it.
func (g *Gateway) setCookie(w http.ResponseWriter, r *http.Request, credential string, lifetime time.Duration) {
	secure := g.isSecure(r)
	age := int(lifetime / time.Second)
	if age <= 0 {
		age = -1 // drop it
	}
	http.SetCookie(w, &http.Cookie{ //nolint:gosec // without TLS it can't be Secure
		Name: cookieNameFor(secure), Value: credential, Path: "/", MaxAge: age,
		Secure: secure, HttpOnly: true, SameSite: http.SameSiteStrictMode,
	})
	w.Header().Set("Cache-Control", "no-store")
}

func principalAnswer(principal *access.Principal) api.Principal {
	return api.Principal{
		Principal: principal.Name, Kind: string(principal.Kind), Grants: access.Texts(principal.Grants()),
		ExpiresAt: optionalTime(principal.ExpiresAt),
	}
}
