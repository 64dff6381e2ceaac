package gateway

import (
	"net"
	"net/http"
	"slices"
	"strings"

	"github.com/fencegate/fencegate/gateway/api"
)

// Browsers add cookies, client certificates and passwords (Authorization: Basic, for a proxy) to requests by
// themselves, also to those that a page of another site has them send. So a request without Authorization: Bearer may
// be such a one, and is judged by where it comes from.

// Names of the cookie that has a credential. Browsers accept the first over TLS only, and from no other host.
const (
	cookieName          = "__Host-fencegate"
	cookieNamePlaintext = "fencegate"
)

// admitBrowser refuses a request that a page of another origin has a browser send. It moves the credential of the
// cookie to the header Authorization, where authenticators look for it. It does not change a request with a credential
// there.
func (g *Gateway) admitBrowser(r *http.Request) error {
	if slices.ContainsFunc(r.Header["Authorization"], isBearer) {
		return nil
	}
	if g.crossOrigin.Check(r) != nil {
		return otherOrigin()
	}
	if g.config.Auth == nil {
		return nil
	}
	cookies := r.CookiesNamed(cookieNameFor(g.isSecure(r)))
	if len(cookies) == 0 {
		return nil
	}
	if fromElsewhere(r) {
		return otherOrigin()
	}
	r.Header.Del("Authorization")
	for _, cookie := range cookies { // several are as bad as several headers
		r.Header.Add("Authorization", bearerScheme+cookie.Value)
	}
	return nil
}

// fromElsewhere reports whether a browser says that a page of another origin has led to this request. Older browsers do
// not say it.
func fromElsewhere(r *http.Request) bool {
	switch r.Header.Get("Sec-Fetch-Site") {
	case "", "same-origin", "none": // none: the user has typed the address, or chosen a bookmark
		return false
	}
	return true
}

const bearerScheme = "Bearer "

func isBearer(authorization string) bool {
	return len(authorization) >= len(bearerScheme) && strings.EqualFold(authorization[:len(bearerScheme)], bearerScheme)
}

func otherOrigin() *api.Problem {
	return problem(http.StatusForbidden, api.CodeForbidden,
		"A page of another origin has sent this request. If it was a page of this gateway, a proxy has changed the Host.")
}

// isSecure reports whether the client speaks TLS, with the gateway or with a trusted proxy.
func (g *Gateway) isSecure(r *http.Request) bool {
	if r.TLS != nil {
		return true
	}
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	return err == nil && g.trusted(host) && r.Header.Get("X-Forwarded-Proto") == "https"
}

func cookieNameFor(secure bool) string {
	if secure {
		return cookieName
	}
	return cookieNamePlaintext
}
