package gateway

import (
	"bytes"
	"net/http"
	"testing"

	"github.com/fencegate/fencegate/gateway/api"
)

// The endpoints for operators answer.
func TestOperations(t *testing.T) {
	h := newHarness(t, Config{})
	if health := as[api.Health](t, h.get(t, "/healthz"), http.StatusOK); health.Status != "ok" {
		t.Errorf("/healthz returned %q, want ok", health.Status)
	}
	h.awaitReady(t)
	if health := as[api.Health](t, h.get(t, "/readyz"), http.StatusOK); health.Status != "ready" {
		t.Errorf("/readyz returned %q, want ready", health.Status)
	}
	got := h.get(t, "/openapi.yaml")
	if got.status != http.StatusOK || got.header.Get("Content-Type") != "application/yaml" ||
		!bytes.Equal(got.body, openAPI) {
		t.Errorf("/openapi.yaml: answered %d %s with %d bytes, want the file", got.status, got.header.Get("Content-Type"),
			len(got.body))
	}
}
