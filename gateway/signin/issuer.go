package signin

import (
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/gorilla/mux"

	"github.com/fencegate/fencegate/gateway/auth"
	"github.com/fencegate/fencegate/gateway/auth/accessfile"
	"github.com/fencegate/fencegate/gateway/auth/oidc"
	"github.com/fencegate/fencegate/gateway/endpoint"
	"github.com/fencegate/fencegate/gateway/metrics"
	"github.com/fencegate/fencegate/lockclient/api"
)

const (
	// SignInsPerSecond limits sign-ins per address; exchangesPerSecond limits code exchanges over all callers.
	SignInsPerSecond, exchangesPerSecond = 10, 50
	// attemptAge is the time that a user has to sign in at the issuer.
	attemptAge = 10 * time.Minute
	// ReturnMax bounds the page to which a user returns, in bytes.
	ReturnMax = 1000
)

// Names of the cookie of a sign-in that has begun. Browsers accept the first, which the name of the issuer ends, over TLS
// only, and from no other host.
const (
	attemptCookie          = "__Host-fencegate-sign-in-"
	AttemptCookiePlaintext = "fencegate-sign-in"
)

// attempt is a sign-in by an issuer that has begun. The browser keeps it in a cookie, so any gateway can finish it.
//
// Nobody signs the cookie: no other host can put one into a browser. What a user puts into the own browser does not help
// with the code of somebody else, since the issuer compares the verifier with that sign-in's (PKCE).
type attempt struct {
	oidc.Secrets

	page string // of the dashboard to return to: what follows # in its address
}

func (e *Endpoints) listSignIns(w *endpoint.Answer, r *http.Request) error {
	_, err := endpoint.Query(r)
	return endpoint.AnswerJSON(w, api.SignIns{
		Issuers: endpoint.Convert(e.Issuers.SignIns(), func(issuer *accessfile.Issuer) api.SignInIssuer {
			return api.SignInIssuer{Name: issuer.Name, Label: issuer.SignIn.Label}
		}),
	}, err)
}

// startSignIn sends a browser to an issuer.
func (e *Endpoints) startSignIn(w *endpoint.Answer, r *http.Request) error {
	given, err := endpoint.Query(r, "return")
	if err != nil {
		return err
	}
	if endpoint.FromElsewhere(r) {
		return endpoint.OtherOrigin() // no other page may sign users in again who have signed out
	}
	begun := attempt{oidc.NewSecrets(), given.Get("return")}
	if !isPage(begun.page) {
		return endpoint.Invalid("return must be what follows # in an address of the dashboard, at most %d bytes.", ReturnMax)
	}
	if err := e.countSignIn(r); err != nil {
		return err
	}
	address, err := e.Issuers.BeginSignIn(mux.Vars(r)["issuer"], begun.Secrets, e.callback(r))
	switch {
	case errors.Is(err, auth.ErrNoSignIn):
		return noSignIn()
	case err != nil:
		e.toDashboard(w, begun.page, e.signInFailure(r, err))
		return nil
	}
	values := url.Values{"state": {begun.State}, "nonce": {begun.Nonce}, "verifier": {begun.Verifier}, "page": {begun.page}}
	e.setAttempt(w, r, values.Encode(), attemptAge)
	redirect(w, address)
	return nil
}

// finishSignIn takes the browser back from the issuer, signs the user in, and shows the page where it began.
func (e *Endpoints) finishSignIn(w *endpoint.Answer, r *http.Request) error {
	if err := e.countSignIn(r); err != nil {
		return err
	}
	if !e.Issuers.HasSignIn(mux.Vars(r)["issuer"]) {
		return noSignIn()
	}
	given := r.URL.Query() // issuers add parameters of their own
	begun, ok := e.attempt(r)
	if !ok || subtle.ConstantTimeCompare([]byte(given.Get("state")), []byte(begun.State)) != 1 {
		e.toDashboard(w, "", api.SignInExpired)
		return nil
	}
	e.setAttempt(w, r, "", -time.Second)
	e.toDashboard(w, begun.page, e.exchange(w, r, begun, given))
	return nil
}

// exchange has the browser keep the ID token for the code that it brings; "": it does.
func (e *Endpoints) exchange(
	w http.ResponseWriter, r *http.Request, begun attempt, given url.Values,
) api.SignInFailure {
	switch refusal := given.Get("error"); {
	case refusal == "access_denied":
		return api.SignInDenied
	case refusal != "" || given.Get("code") == "":
		return e.signInFailure(r, fmt.Errorf("the issuer has sent the error %.40q, and no code", refusal))
	}
	if e.Exchanges.Take() > 0 {
		e.Metrics.RateLimited(metrics.LimitFailures)
		return api.SignInUnreachable
	}
	token, principal, err := e.Issuers.FinishSignIn(e.Work(r), mux.Vars(r)["issuer"], begun.Secrets,
		given.Get("code"), e.callback(r))
	switch {
	case err != nil:
		return e.signInFailure(r, err)
	case len(token) > CookieBytesMax:
		return api.SignInTooLong
	}
	e.keepCredential(w, r, token, principal)
	return ""
}

func noSignIn() *api.Problem {
	return endpoint.Problem(http.StatusNotFound, api.CodeNotFound, "There is no sign-in issuer of this name.")
}

// signInFailure logs why nobody was signed in, and returns what the user learns of it.
func (e *Endpoints) signInFailure(r *http.Request, err error) api.SignInFailure {
	e.Logger.WarnContext(r.Context(), "sign-in failed", "issuer", endpoint.Clip(mux.Vars(r)["issuer"]), "error", err)
	switch {
	case errors.Is(err, auth.ErrUnreachable):
		return api.SignInUnreachable
	case errors.Is(err, auth.ErrIDToken):
		return api.SignInRefused
	}
	return api.SignInFailed
}

// countSignIn counts a request that costs more than another public one.
func (e *Endpoints) countSignIn(r *http.Request) error {
	if wait := e.SignIns.OfAddress(e.Address(r)).Take(); wait > 0 {
		return e.RateLimited(metrics.LimitFailures, "Too many sign-ins from this address.", wait)
	}
	return nil
}

// callback is where an issuer sends a browser back to: this gateway, as the browser has reached it. The issuer sends
// users only to addresses that its operator has listed, so a false Host leads nowhere.
func (e *Endpoints) callback(r *http.Request) string {
	address := url.URL{Scheme: "http", Host: r.Host, Path: accessfile.CallbackPath(mux.Vars(r)["issuer"])}
	if e.IsSecure(r) {
		address.Scheme = "https"
	}
	return address.String()
}

// attempt reads the cookie of a sign-in. Several are refused: another host may have set one.
func (e *Endpoints) attempt(r *http.Request) (attempt, bool) {
	cookies := r.CookiesNamed(attemptName(r, e.IsSecure(r)))
	if len(cookies) != 1 {
		return attempt{}, false
	}
	values, err := url.ParseQuery(cookies[0].Value)
	begun := attempt{
		oidc.Secrets{State: values.Get("state"), Nonce: values.Get("nonce"), Verifier: values.Get("verifier")},
		values.Get("page"),
	}
	return begun, err == nil && begun.State != "" && begun.Nonce != "" && begun.Verifier != "" && isPage(begun.page)
}

// setAttempt has the browser keep a sign-in, or drop it. It is Lax, since the issuer's page leads to the callback.
// Without TLS it has no Path, so browsers take the directory of the address that they see, /v1/sign-in/ISSUER.
func (e *Endpoints) setAttempt(w http.ResponseWriter, r *http.Request, value string, age time.Duration) {
	secure, path := e.IsSecure(r), ""
	if secure {
		path = "/" // its name demands it
	}
	http.SetCookie(w, &http.Cookie{ //nolint:gosec // without TLS it can't be Secure
		Name: attemptName(r, secure), Path: path, Value: value, MaxAge: int(age / time.Second),
		Secure: secure, HttpOnly: true, SameSite: http.SameSiteLaxMode,
	})
}

func attemptName(r *http.Request, secure bool) string {
	if secure {
		return attemptCookie + mux.Vars(r)["issuer"]
	}
	return AttemptCookiePlaintext
}

// isPage reports whether a text can follow # in an address of the dashboard.
func isPage(text string) bool {
	return len(text) <= ReturnMax && !strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r >= 0x7f })
}

// toDashboard shows a page of the dashboard, with the failure. The address is relative, and the page is behind its #: it
// is on this gateway, whatever the page says.
//
// The browser comes from the issuer's page, so it does not send the cookie of the credential, which is Strict, with this
// request. It needs none: the page is public, and the requests that it makes are of its own origin.
func (e *Endpoints) toDashboard(w http.ResponseWriter, page string, failure api.SignInFailure) {
	address := "../../../"
	if failure != "" {
		address += "?sign-in=" + string(failure)
	}
	redirect(w, address+"#"+page)
}

// redirect sends a browser elsewhere. Neither the answer nor the address from which it comes, which may have a code, is
// kept.
func redirect(w http.ResponseWriter, address string) {
	header := w.Header()
	header.Set("Location", address)
	header.Set("Cache-Control", "no-store")
	header.Set("Referrer-Policy", "no-referrer")
	w.WriteHeader(http.StatusSeeOther)
}
