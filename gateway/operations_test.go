package gateway

import (
	"bytes"
	"net/http"
	"testing"

	"github.com/fencegate/fencegate/gateway/api"
)

func TestOperations(t *testing.T) {
	h := newHarness(t, Config{})
	if health := as[api.Health](t, h.get(t, "/healthz"), http.StatusOK); health.Status != "ok" {
		t.Errorf("/healthz says %q", health.Status)
	}
	if health := as[api.Health](t, h.get(t, "/readyz"), http.StatusOK); health.Status != "ready" {
		t.Errorf("/readyz says %q", health.Status)
	}
	got := h.get(t, "/openapi.yaml")
	if got.status != http.StatusOK || got.header.Get("Content-Type") != "application/yaml" || !bytes.Equal(got.body, openAPI) {
		t.Errorf("/openapi.yaml: %d, %s, %d bytes", got.status, got.header.Get("Content-Type"), len(got.body))
	}
}
