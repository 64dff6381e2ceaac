package deploy

import (
	"bufio"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/internal/test/testenv/gateway"
	"github.com/fencegate/fencegate/lockclient"
	"github.com/fencegate/fencegate/lockclient/api"
)

// brokenGateway is a gateway that is ready until it is down, and answers no other request: it closes the connection at
// /close, and never answers at /hang.
type brokenGateway struct {
	down    atomic.Bool
	hanging atomic.Int64
}

func (g *brokenGateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.URL.Path == "/readyz" && g.down.Load():
		http.Error(w, "not ready", http.StatusInternalServerError)
	case r.URL.Path == "/readyz":
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"status":"ready"}`)
	case r.URL.Path == "/hang":
		_, _ = io.Copy(io.Discard, r.Body) // or the end of the connection is not seen
		g.hanging.Add(1)
		<-r.Context().Done()
	default:
		panic(http.ErrAbortHandler)
	}
}

// startBroken starts a broken gateway behind the proxy.
func startBroken(t *testing.T, changes ...string) (broken *brokenGateway, address string) {
	t.Helper()
	broken = &brokenGateway{}
	server := httptest.NewServer(broken)
	t.Cleanup(server.Close)
	both := []*gateway.Process{{URL: server.URL}, {URL: server.URL}}
	return broken, strings.TrimPrefix(proxied(t, both, changes...), "http://")
}

// TestProxyErrors checks that the errors of the proxy itself have the form of the gateway's, and that they say whether a
// change may have been made.
func TestProxyErrors(t *testing.T) {
	t.Parallel()
	_, address := startBroken(t, "timeout server 11m", "timeout server 300ms", "option forwardfor",
		"option forwardfor\n    http-request deny deny_status 408 if { path /late }\n"+
			"    http-request deny deny_status 429 if { path /limited }")
	for name, c := range map[string]struct {
		request string
		status  int
		code    api.Code
		outcome api.Outcome
	}{
		"a write whose gateway ends": {"PUT /close HTTP/1.1\nContent-Length: 1\n\nx", 502, api.CodeUnavailable, "unknown"},
		"a read whose gateway ends":  {"GET /close HTTP/1.1\n\n", 502, api.CodeUnavailable, "not_applied"},
		"a write without an answer":  {"PUT /hang HTTP/1.1\nContent-Length: 1\n\nx", 504, api.CodeUnavailable, "unknown"},
		"a read without an answer":   {"GET /hang HTTP/1.1\n\n", 504, api.CodeUnavailable, "not_applied"},
		"a request that is late":     {"GET /late HTTP/1.1\n\n", 408, api.CodeInvalidRequest, ""},
		"too many requests":          {"GET /limited HTTP/1.1\n\n", 429, api.CodeRateLimited, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			wantProblem(t, address, c.request, c.status, c.code, c.outcome)
		})
	}
}

// TestProxyWithoutGateway checks the answers when the last gateway goes down: to a request that it has, and to others.
func TestProxyWithoutGateway(t *testing.T) {
	t.Parallel()
	broken, address := startBroken(t, "inter 2s fastinter 500ms", "inter 50ms fastinter 50ms",
		"timeout connect 2s", "timeout connect 2s\n    timeout check 10s")
	underWay := make(chan struct{})
	go func() {
		defer close(underWay)
		wantProblem(t, address, "PUT /hang HTTP/1.1\nContent-Length: 1\n\nx", 502, api.CodeUnavailable, "unknown")
	}()
	await.True(t, "the gateway has the request", func() bool { return broken.hanging.Load() == 1 })
	broken.down.Store(true)
	await.Receive(t, "the answer", underWay)
	client := clientOf(t, "http://"+address)
	await.True(t, "both are down", func() bool {
		problem := lockclient.ProblemOf(client.API().Ready(t.Context()))
		return problem != nil && problem.Status == http.StatusServiceUnavailable
	})
	wantProblem(t, address, "PUT /hang HTTP/1.1\nContent-Length: 1\n\nx", 503, api.CodeUnavailable, "not_applied")
}

// wantProblem sends the text of a request and expects a problem.
func wantProblem(t *testing.T, address, request string, status int, code api.Code, outcome api.Outcome) {
	t.Helper()
	conn, err := (&net.Dialer{Timeout: await.Limit}).DialContext(t.Context(), "tcp", address)
	if err != nil {
		t.Error(err)
		return
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(await.Limit))
	request = strings.Replace(request, " HTTP/1.1\n", " HTTP/1.1\nHost: fencegate\n", 1)
	if _, err := io.WriteString(conn, strings.ReplaceAll(request, "\n", "\r\n")); err != nil {
		t.Error(err)
	}
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Errorf("%q: %v", request, err)
		return
	}
	defer func() { _ = response.Body.Close() }()
	var problem api.Problem
	body, err := io.ReadAll(response.Body)
	if err == nil {
		err = json.Unmarshal(body, &problem)
	}
	retryable := code != api.CodeInvalidRequest
	switch {
	case err != nil, response.Header.Get("Content-Type") != api.ProblemContentType:
		t.Errorf("%q: %d %v, with the body %s (%v)", request, response.StatusCode, response.Header, body, err)
	case response.StatusCode != status, problem.Status != status, problem.Code != code, problem.Outcome != outcome,
		problem.Type != "urn:fencegate:problem:"+string(code), problem.Retryable != retryable,
		(response.Header.Get("Retry-After") != "") != retryable:
		t.Errorf("%q: got %d, %s, Retry-After %q; want %d, %s, outcome %q", request, response.StatusCode, body,
			response.Header.Get("Retry-After"), status, code, outcome)
	}
}
