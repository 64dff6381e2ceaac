package endpoint

import (
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/fencegate/fencegate/gateway/api"
)

// Address returns the client's address without its port: that of the connection, since any client can send a header.
// If the connection comes from a proxy that the operator trusts, it is the last address in X-Forwarded-For that is not
// such a proxy's. A client may have written the ones before it.
func (s *Server) Address(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		host = r.RemoteAddr
	}
	if len(s.TrustedProxies) == 0 || !s.trusted(host) {
		return host
	}
	for _, header := range slices.Backward(r.Header.Values("X-Forwarded-For")) {
		for _, hop := range slices.Backward(strings.Split(header, ",")) {
			hop = strings.TrimSpace(hop)
			address, err := netip.ParseAddr(hop)
			if err != nil {
				return host
			}
			host = address.Unmap().WithZone("").String()
			if !s.trusted(host) {
				return host
			}
		}
	}
	return host
}

func (s *Server) trusted(host string) bool {
	address, err := netip.ParseAddr(host)
	address = address.Unmap()
	return err == nil && slices.ContainsFunc(s.TrustedProxies, func(proxies netip.Prefix) bool {
		return proxies.Contains(address)
	})
}

// Browsers add cookies, client certificates and passwords (Authorization: Basic, for a proxy) to requests by
// themselves, also to those that a page of another site has them send. So a request without Authorization: Bearer may
// be such a one, and is judged by where it comes from.

// Names of the cookie that has a credential. Browsers accept the first over TLS only, and from no other host.
const (
	cookieName          = "__Host-fencegate"
	CookieNamePlaintext = "fencegate"
)

// admitBrowser refuses a request that a page of another origin has a browser send. It moves the credential of the
// cookie to the header Authorization, where authenticators look for it. It does not change a request with a credential
// there.
func (s *Server) admitBrowser(r *http.Request) error {
	if slices.ContainsFunc(r.Header["Authorization"], isBearer) {
		return nil
	}
	if s.CrossOrigin.Check(r) != nil {
		return OtherOrigin()
	}
	if s.Auth == nil {
		return nil
	}
	cookies := r.CookiesNamed(CookieNameFor(s.IsSecure(r)))
	if len(cookies) == 0 {
		return nil
	}
	if FromElsewhere(r) {
		return OtherOrigin()
	}
	r.Header.Del("Authorization")
	for _, cookie := range cookies { // several are as bad as several headers
		r.Header.Add("Authorization", BearerScheme+cookie.Value)
	}
	return nil
}

// FromElsewhere reports whether a browser says that a page of another origin has led to this request. Older browsers do
// not say it.
func FromElsewhere(r *http.Request) bool {
	switch r.Header.Get("Sec-Fetch-Site") {
	case "", "same-origin", "none": // none: the user has typed the address, or chosen a bookmark
		return false
	}
	return true
}

// BearerScheme begins the header Authorization.
const BearerScheme = "Bearer "

func isBearer(authorization string) bool {
	return len(authorization) >= len(BearerScheme) && strings.EqualFold(authorization[:len(BearerScheme)], BearerScheme)
}

// OtherOrigin is the answer to a request that a page of another site has sent.
func OtherOrigin() *api.Problem {
	return Problem(http.StatusForbidden, api.CodeForbidden,
		"A page of another origin has sent this request. If it was a page of this gateway, a proxy has changed the Host.")
}

// IsSecure reports whether the client speaks TLS, with the gateway or with a trusted proxy.
func (s *Server) IsSecure(r *http.Request) bool {
	if r.TLS != nil {
		return true
	}
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	return err == nil && s.trusted(host) && r.Header.Get("X-Forwarded-Proto") == "https"
}

// CookieNameFor returns the name of the cookie that has the credential.
func CookieNameFor(secure bool) string {
	if secure {
		return cookieName
	}
	return CookieNamePlaintext
}
