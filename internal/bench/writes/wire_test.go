package writes

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// The server is net/http's, as the gateway's is.
func TestWireReadsAnswersOfNetHTTP(t *testing.T) {
	const long = 100_000
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		switch r.URL.Path {
		case "/length":
			_, _ = fmt.Fprintf(w, "%s %s %s", r.Method, r.Header.Get("Fencing-Token"), body)
		case "/empty":
			w.WriteHeader(http.StatusCreated)
		case "/chunked":
			for range 10 {
				_, _ = io.WriteString(w, strings.Repeat("x", long/10))
				w.(http.Flusher).Flush()
			}
		case "/none":
			w.WriteHeader(http.StatusNoContent)
		}
	}))
	defer server.Close()
	wires, err := dialWires(t.Context(), []string{server.Listener.Addr().String()}, 1, clientAccess{})
	if err != nil {
		t.Fatal(err)
	}
	wire := wires.all[0]
	for range 2 { // on one connection: each answer is read to its end
		for path, want := range map[string]struct {
			status int
			body   string
		}{
			"/length":  {200, "PUT 34.2 hello"},
			"/empty":   {201, ""},
			"/chunked": {200, strings.Repeat("x", long)},
			"/none":    {204, ""},
		} {
			wire.begin("PUT", path)
			wire.request = append(wire.request, "Fencing-Token: 34.2\r\n"...)
			if err := wire.send([]byte("hello")); err != nil {
				t.Fatal(err)
			}
			status, body, err := wire.answer()
			if err != nil || status != want.status || string(body) != want.body {
				t.Errorf("%s: %d, %.80q, %v", path, status, body, err)
			}
		}
	}
	wires.close()
}

func TestWireFailsWhenTheContextEnds(t *testing.T) {
	silent := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-silent }))
	defer server.Close()
	defer close(silent)
	ctx, cancel := context.WithCancel(t.Context())
	wires, err := dialWires(ctx, []string{server.Listener.Addr().String()}, 1, clientAccess{})
	if err != nil {
		t.Fatal(err)
	}
	wire := wires.all[0]
	wire.begin("GET", "/")
	if err := wire.send(nil); err != nil {
		t.Fatal(err)
	}
	cancel()
	if _, _, err := wire.answer(); err == nil {
		t.Error("an answer came")
	}
}

func TestWireErrors(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "SSH-2.0-OpenSSH_9.2p1\r\n")
	}))
	defer server.Close()
	wires, err := dialWires(t.Context(), []string{server.Listener.Addr().String()}, 1, clientAccess{})
	if err != nil {
		t.Fatal(err)
	}
	defer wires.close()
	wires.all[0].begin("GET", "/")
	if err := wires.all[0].send(nil); err != nil {
		t.Fatal(err)
	}
	if _, _, err := wires.all[0].answer(); !errors.Is(err, errAnswer) || !strings.Contains(err.Error(), "OpenSSH") {
		t.Errorf("got %v", err)
	}
}
