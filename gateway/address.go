package gateway

import (
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// address returns the client's address without its port: that of the connection, since any client can send a header.
// If the connection comes from a proxy that the operator trusts, it is the last address in X-Forwarded-For that is not
// such a proxy's. A client may have written the ones before it.
func (g *Gateway) address(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		host = r.RemoteAddr
	}
	if len(g.config.TrustedProxies) == 0 || !g.trusted(host) {
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
			if !g.trusted(host) {
				return host
			}
		}
	}
	return host
}

func (g *Gateway) trusted(host string) bool {
	address, err := netip.ParseAddr(host)
	address = address.Unmap()
	return err == nil && slices.ContainsFunc(g.config.TrustedProxies, func(proxies netip.Prefix) bool {
		return proxies.Contains(address)
	})
}
