package gateway

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/fencegate/fencegate/gateway/endpoint"
	"github.com/fencegate/fencegate/lockclient/api"
)

// anyHost in AllowedHosts admits every request.
const anyHost = "*"

// DefaultHosts returns the AllowedHosts of a gateway that listens on an address. A browser sends the name in the
// address bar as Host, and the owner of a name may point it at any gateway: a page from there would then be of the same
// origin as the gateway. So without authentication only addresses are admitted, and localhost; on the loopback
// interface only loopback addresses. With authentication such a page has no credential, and every host is admitted.
func DefaultHosts(listen net.Addr, authenticated bool) []string {
	switch {
	case IsLoopback(listen):
		return []string{"localhost", "127.0.0.0/8", "::1/128"}
	case authenticated:
		return []string{anyHost}
	default:
		return []string{"localhost", "0.0.0.0/0", "::/0"}
	}
}

// IsLoopback says that no other machine can reach the address.
func IsLoopback(listen net.Addr) bool {
	tcp, ok := listen.(*net.TCPAddr)
	return ok && tcp.IP.IsLoopback()
}

// hosts are those that a gateway answers for.
type hosts struct {
	names    map[string][]uint16 // with ports; nil: any
	networks []netip.Prefix
}

// parseHosts reads a list of names, addresses and networks; names and addresses may have a port. It returns nil for
// every host.
func parseHosts(list []string) (*hosts, error) {
	if len(list) == 0 || slices.Contains(list, anyHost) {
		return nil, nil
	}
	h := &hosts{names: map[string][]uint16{}}
	for _, each := range list {
		if network, err := netip.ParsePrefix(each); err == nil {
			h.networks = append(h.networks, network.Masked())
			continue
		}
		if address, err := netip.ParseAddr(each); err == nil { // IPv6 without brackets
			each = "[" + address.String() + "]"
			if address.Is4() {
				each = address.String()
			}
		}
		name, port, ok := splitHost(each)
		if !ok {
			return nil, fmt.Errorf("%q is no name, address or network, nor \"*\"", each)
		}
		ports, known := h.names[name]
		switch {
		case port == 0:
			h.names[name] = nil
		case !known || ports != nil:
			h.names[name] = append(ports, port)
		}
	}
	return h, nil
}

// admit says whether a request with this Host is answered.
func (h *hosts) admit(host string) bool {
	name, port, ok := splitHost(host)
	if !ok {
		return false
	}
	if ports, known := h.names[name]; known && (ports == nil || slices.Contains(ports, port)) {
		return true
	}
	address, err := netip.ParseAddr(name)
	address = address.Unmap()
	return err == nil && slices.ContainsFunc(h.networks, func(n netip.Prefix) bool { return n.Contains(address) })
}

// splitHost returns a host in lower case, without brackets and without the dot at its end, and its port; 0 if it has
// none.
func splitHost(text string) (name string, port uint16, ok bool) {
	name, portText := text, ""
	if end := strings.LastIndexByte(text, ']'); end >= 0 {
		name, portText = text[:end+1], text[end+1:]
	} else if colon := strings.LastIndexByte(text, ':'); colon >= 0 {
		name, portText = text[:colon], text[colon:]
	}
	if portText != "" {
		number, err := strconv.ParseUint(strings.TrimPrefix(portText, ":"), 10, 16)
		if err != nil || portText[0] != ':' {
			return "", 0, false
		}
		port = uint16(number)
	}
	name = strings.ToLower(name)
	if inner, is6 := strings.CutPrefix(name, "["); is6 {
		name = strings.TrimSuffix(inner, "]")
		return name, port, strings.ContainsRune(name, ':')
	}
	name = strings.TrimSuffix(name, ".")
	return name, port, name != "" && !strings.ContainsAny(name, ":/[]*@ ")
}

// onlyAllowedHosts refuses requests for other hosts before anything is done for them. Health checks come with any Host,
// or none, and have no effect.
func (g *Gateway) onlyAllowedHosts(router http.Handler) http.Handler {
	if g.hosts == nil {
		return router
	}
	refuse := g.Serving(endpoint.RouteNone, endpoint.Public, func(_ *endpoint.Answer, r *http.Request) error {
		return endpoint.Problem(http.StatusMisdirectedRequest, api.CodeUnknownHost, fmt.Sprintf(
			"This gateway does not answer for the host %.100q. If it should, name the host by --allowed-hosts.", r.Host))
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if g.hosts.admit(r.Host) || r.URL.Path == "/healthz" || r.URL.Path == "/readyz" {
			router.ServeHTTP(w, r)
			return
		}
		refuse.ServeHTTP(w, r)
	})
}
