package gateway

import (
	"context"
	"net/http"
	"time"

	"github.com/gorilla/mux"

	"github.com/fencegate/fencegate/gateway/endpoint"
	"github.com/fencegate/fencegate/lockclient/api"
)

const (
	rangeDefault = 5 * time.Minute
	// overviewTimeout bounds the reading of an overview: a dashboard must show soon that the database does not answer.
	overviewTimeout = 3 * time.Second
)

func (g *Gateway) overviewRoutes(router *mux.Router) {
	g.Route(router, "/v1/overview/stream", endpoint.Methods{"GET": g.streamOverview})
	g.Route(router, "/v1/overview", endpoint.Methods{"GET": g.WithoutBody(g.getOverview)})
}

// getOverview answers the state of all gateways and of the database, and their recent history. While the database is
// unreachable, it answers the last known state.
func (g *Gateway) getOverview(ctx context.Context, r *http.Request) (any, error) {
	length, err := readRange(r)
	if err != nil {
		return nil, err
	}
	known, failed := g.readOverview(ctx)
	if failed != nil && !isUnavailable(failed) {
		return nil, failed
	}
	points, step := g.history.points(known.at(), length)
	return api.Overview{
		At: api.Time{Time: known.at()}, RangeMS: int64(len(points)) * step.Milliseconds(), StepMS: step.Milliseconds(),
		OverviewState: g.overviewState(known, failed), Points: points,
	}, nil
}

func readRange(r *http.Request) (time.Duration, error) {
	p := endpoint.ReadParameters(r, "range_ms")
	least, most := int(historyMin.Milliseconds()), int(historyMax.Milliseconds())
	ms := p.Integer("range_ms", least, most, int(rangeDefault.Milliseconds()))
	if ms < least || ms > most {
		p.Fail(endpoint.Invalid("range_ms must be an integer from %d to %d.", least, most))
	}
	return time.Duration(ms) * time.Millisecond, p.Err
}
