package gateway

import (
	"context"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/fencegate/fencegate/gateway/api"
)

func TestHosts(t *testing.T) {
	t.Parallel()
	loopback := DefaultHosts(&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}, true)
	open := DefaultHosts(&net.TCPAddr{IP: net.IPv4zero}, false)
	for _, test := range []struct {
		allowed           []string
		admitted, refused string
	}{
		{
			loopback, "localhost localhost:8080 LOCALHOST:1 localhost. localhost.:80 127.0.0.1:8080 127.9.9.9 [::1]:8080 [::1] " +
				"[::ffff:127.0.0.1]:80 [0:0:0:0:0:0:0:1]",
			"evil.test evil.test:8080 localhost.evil.test 127.0.0.1.evil.test 10.0.0.5 0.0.0.0 [::] [fe80::1%25eth0] ::1 127.1 " +
				"0x7f000001 user@localhost localhost:x localhost: localhost:99999 [::1 ::1] []:80 . :8080 localhost.. [localhost]",
		},
		{open, "10.0.0.5:8080 127.0.0.1 [2001:db8::1]:80 localhost", "evil.test fencegate:8080 10.0.0.5.evil.test"},
		{
			[]string{"Fence.Example.", "b.test:8443", "10.0.0.0/8", "2001:db8::1", "192.0.2.7", "c.test:1", "c.test:2"},
			"fence.example fence.example:1 FENCE.example. b.test:8443 10.1.2.3:4 [2001:DB8::1]:9 192.0.2.7:80 c.test:1 c.test:2",
			"b.test b.test:80 b.test:8080 www.fence.example example localhost 127.0.0.1 192.0.2.70 11.0.0.1 c.test:3",
		},
		{[]string{"a.test", "*"}, "evil.test", ""},
		{nil, "evil.test", ""},
		{DefaultHosts(&net.TCPAddr{IP: net.IPv4zero}, true), "evil.test", ""},
	} {
		h, err := parseHosts(test.allowed)
		if err != nil {
			t.Fatal(err)
		}
		admits := func(host string) bool { return h == nil || h.admit(host) }
		for host := range strings.FieldsSeq(test.admitted) {
			if !admits(host) {
				t.Errorf("%q refuse %q, expected to admit it", test.allowed, host)
			}
		}
		for host := range strings.FieldsSeq(test.refused) {
			if admits(host) {
				t.Errorf("%q admit %q, expected to refuse it", test.allowed, host)
			}
		}
		if h != nil && h.admit("") {
			t.Errorf("%q admit a request without a host", test.allowed)
		}
	}
	for _, bad := range []string{"", "a b", "http://a.test", "a.test/x", "*.a.test", "[a]", "a:b"} {
		if _, err := parseHosts([]string{bad}); err == nil {
			t.Errorf("%q is accepted as a host", bad)
		}
	}
}

// A page at a rebound name can neither change nor read anything, by either version of HTTP. Health checks answer.
func TestReboundHostHasNoEffect(t *testing.T) {
	h := newGateway(t, Config{AllowedHosts: DefaultHosts(&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}, false)},
		patientDatabase(t))
	h.serveItself(t)
	lease := h.acquire(t, "job", "worker")
	overBothNow(t, func(t *testing.T, http2 bool) {
		rebound := client{base: h.base, http: &http.Client{Transport: withHost{newHTTPClient(t, http2).Transport, "evil.test"}}}
		h.unchanged(t, func() {
			for _, got := range []answer{
				rebound.post(t, lockPath("job", "/break"), `{"reason":"page"}`),
				rebound.send(t, http.MethodPut, "/v1/policies/job", `{"authority":"external"}`, jsonType),
				rebound.post(t, lockPath("other", "/acquire"), `{"owner_id":"page","ttl_ms":1000}`),
				rebound.putWith(t, "job", token(lease, 1)),
				rebound.get(t, lockPath("job", "")), rebound.get(t, "/v1/overview"), rebound.get(t, "/metrics"),
				rebound.get(t, "/"), rebound.get(t, "/none"),
			} {
				if expectProblem(t, got, api.CodeUnknownHost); got.status != http.StatusMisdirectedRequest {
					t.Errorf("%s was answered with %d, expected 421", got.request, got.status)
				}
			}
		})
		as[api.Health](t, rebound.get(t, "/healthz"), http.StatusOK)
		as[api.Health](t, rebound.get(t, "/readyz"), http.StatusOK)
	})
	for _, request := range []string{
		"GET /v1/locks/job HTTP/1.0\n\n", // without a host
		"GET /v1/locks/job HTTP/1.1\nHost: evil.test\n\n",
		"GET http://evil.test/v1/locks/job HTTP/1.1\nHost: localhost\n\n",
	} {
		got, _ := h.wire(t, request).answer(t)
		if got.status != http.StatusMisdirectedRequest {
			t.Errorf("%q was answered with %d, expected 421", request, got.status)
		}
	}
}

// withHost changes the Host of requests.
type withHost struct {
	http.RoundTripper

	host string
}

func (w withHost) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(context.WithoutCancel(r.Context()))
	r.Host = w.host
	return w.RoundTripper.RoundTrip(r)
}

// overBothNow is overBoth in subtests that end before it returns.
func overBothNow(t *testing.T, test func(t *testing.T, http2 bool)) {
	t.Helper()
	test(t, false)
	test(t, true)
}
