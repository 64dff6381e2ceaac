package gateway

import (
	"context"
	_ "embed"
	"errors"
	"net/http"

	"github.com/gorilla/mux"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/store"
)

//go:embed openapi.yaml
var openAPI []byte

func (g *Gateway) healthRoutes(router *mux.Router) {
	g.route(router, "/healthz", methods{"GET": g.answering(healthy)})
	g.route(router, "/readyz", methods{"GET": g.answering(g.ready)})
	g.route(router, "/metrics", methods{"GET": g.serveMetrics})
	g.route(router, "/openapi.yaml", methods{"GET": serveOpenAPI})
}

// healthy answers that the process runs. It does not ask the database: if that is down, restarting gateways won't help.
func healthy(context.Context, *http.Request) (any, error) { return api.Health{Status: "ok"}, nil }

// ready answers whether the gateway can serve, and if not, why.
func (g *Gateway) ready(ctx context.Context, _ *http.Request) (any, error) {
	if g.leaving.Load() {
		return nil, busy("The gateway is draining: it shuts down, and takes no new clients soon.")
	}
	err := g.backend.Ready(ctx)
	if err == nil {
		return api.Health{Status: "ready"}, nil
	}
	answer := problemOf(ofRead(err))
	if _, unavailable := errors.AsType[*store.UnavailableError](err); unavailable {
		answer.Detail = "The gateway can't serve: " + failureDetail(err) + "."
	}
	return nil, answer
}

func (g *Gateway) serveMetrics(w *answerWriter, r *http.Request) error {
	g.metrics.ServeHTTP(w, r)
	return nil
}

func serveOpenAPI(w *answerWriter, _ *http.Request) error {
	w.Header().Set("Content-Type", "application/yaml")
	_, _ = w.Write(openAPI)
	return nil
}
