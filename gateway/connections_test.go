package gateway

import (
	"net/http"
	"strings"
	"testing"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/gateway/limits"
	"github.com/fencegate/fencegate/internal/access"
)

// TestServerIsBounded checks that the server bounds the size and the time of all that a connection sends.
func TestServerIsBounded(t *testing.T) {
	t.Parallel()
	s := newKeyedGateway(t, &keysInMemory{}).newServer()
	if s.ReadHeaderTimeout <= 0 || s.ReadTimeout <= 0 || s.WriteTimeout <= 0 || s.IdleTimeout <= 0 ||
		s.MaxHeaderBytes <= 0 || s.ConnState == nil || s.HTTP2.MaxConcurrentStreams <= 0 ||
		s.HTTP2.SendPingTimeout <= 0 || s.HTTP2.PingTimeout <= 0 || s.HTTP2.WriteByteTimeout <= 0 {
		t.Errorf("the server is %+v with HTTP/2 %+v, want every bound", s, s.HTTP2)
	}
}

// TestBadCredentialsOfOneAddress checks that one address may send only so many bad credentials a second, and that a good
// one from there, and others, are served.
func TestBadCredentialsOfOneAddress(t *testing.T) {
	t.Parallel()
	keys := &keysInMemory{}
	good := keys.add("p", access.Grant{Scope: access.Observe})
	g := newKeyedGateway(t, keys)
	g.Failures = limits.New(limits.Config{RequestsPerSecond: 2})
	var got answer
	for range 100 { // a slow machine sends more of them
		if got = ask(g, "GET", "/v1/whoami", bearerOf("bad")); got.status != http.StatusUnauthorized {
			break
		}
	}
	expectProblem(t, got, api.CodeRateLimited)
	if detail := string(got.body); !strings.Contains(detail, "bad credential") {
		t.Errorf("the answer is %s, want the reason", detail)
	}
	if got := ask(g, "GET", "/v1/whoami", good); got.status != http.StatusOK {
		t.Errorf("a good credential from the same address is answered %d, want 200", got.status)
	}
}
