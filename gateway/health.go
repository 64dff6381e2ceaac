package gateway

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/gorilla/mux"

	"github.com/fencegate/fencegate/gateway/endpoint"
	"github.com/fencegate/fencegate/lockclient/api"
	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/readiness"
)

//go:embed openapi.yaml
var openAPI []byte

func (g *Gateway) healthRoutes(router *mux.Router) {
	g.Route(router, "/healthz", endpoint.Methods{"GET": g.WithoutBody(healthy)})
	g.Route(router, "/readyz", endpoint.Methods{"GET": g.WithoutBody(g.ready)})
	g.Route(router, endpoint.DrainRoute, endpoint.Methods{
		"GET": g.WithoutBody(g.getDrain), "PUT": g.setDrain(true), "DELETE": g.setDrain(false),
	})
	g.Route(router, "/metrics", endpoint.Methods{"GET": g.serveMetrics})
	g.Route(router, "/openapi.yaml", endpoint.Methods{"GET": serveOpenAPI})
}

// healthy answers that the process runs. It does not ask the database: if that is down, restarting gateways won't help.
func healthy(context.Context, *http.Request) (any, error) { return api.Health{Status: "ok"}, nil }

// readyTimeout is how long /readyz waits for the first probe of the database, at the start.
const readyTimeout = time.Second

// ready answers whether the gateway can serve, and if not, why.
func (g *Gateway) ready(ctx context.Context, _ *http.Request) (any, error) {
	if g.Leaving.Load() {
		draining := endpoint.Busy("The gateway is draining: its clients move to others.")
		draining.Reason = "draining"
		return nil, draining
	}
	if g.config.KeysRead != nil && !g.config.KeysRead() {
		return nil, endpoint.KeysNotRead()
	}
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	if notReady, is := errors.AsType[*readiness.NotReadyError](g.service.Ready(ctx)); is {
		return nil, g.notReadyProblem(notReady)
	}
	return api.Health{Status: "ready"}, nil
}

// notReadyProblem says why. Without a credential it does not show what the database said: that may name hosts and
// users.
func (g *Gateway) notReadyProblem(notReady *readiness.NotReadyError) *api.Problem {
	detail := string(notReady.Reason)
	if g.Auth == nil {
		detail = failureDetail(notReady)
	}
	answer := endpoint.Busy(fmt.Sprintf("The gateway can't serve since %s: %s.", notReady.Since.UTC().Format(time.RFC3339), detail))
	answer.Title, answer.Reason = store.ErrUnavailable.Error(), string(notReady.Reason)
	return answer
}

// getDrain answers whether the gateway drains, and what is open that its clients wait for.
func (g *Gateway) getDrain(_ context.Context, r *http.Request) (any, error) {
	_, err := endpoint.Query(r)
	return api.Drain{
		Draining: g.Leaving.Load(), Waiting: int64(g.service.Waiting()), Streams: g.Streams.Load(),
	}, err
}

// setDrain needs no database, so it leaves no entry in the audit log.
func (g *Gateway) setDrain(draining bool) endpoint.Handler {
	return func(w *endpoint.Answer, r *http.Request) error {
		if _, err := endpoint.Query(r); err != nil {
			return err
		}
		changed, err := g.SetDraining(draining)
		if err != nil {
			return err
		}
		if changed {
			g.Logger.InfoContext(r.Context(), "drain set", "draining", draining, "by", w.Principal.Name, "address", g.Address(r))
		}
		answer, err := g.getDrain(r.Context(), r)
		return endpoint.AnswerJSON(w, answer, err)
	}
}

func (g *Gateway) serveMetrics(w *endpoint.Answer, r *http.Request) error {
	g.Metrics.ServeHTTP(w, r)
	return nil
}

func serveOpenAPI(w *endpoint.Answer, _ *http.Request) error {
	w.Header().Set("Content-Type", "application/yaml")
	_, _ = w.Write(openAPI)
	return nil
}
