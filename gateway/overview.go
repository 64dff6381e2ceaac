package gateway

import (
	"context"
	"net/http"
	"time"

	"github.com/gorilla/mux"

	"github.com/fencegate/fencegate/gateway/endpoint"
	"github.com/fencegate/fencegate/lockclient/api"
	"github.com/fencegate/fencegate/store"
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

// overviewsBehindMax is how many overviews a client may be behind before its stream is ended.
const overviewsBehindMax = 16

// streamOverview streams an overview every SampleInterval. There is nothing to resume: an overview has the points of
// the past.
func (g *Gateway) streamOverview(w *endpoint.Answer, r *http.Request) error {
	if _, p := endpoint.LastEventID(r); p.Err != nil {
		return p.Err
	}
	return g.StreamEvents(w, r, func() (endpoint.EventSource, error) {
		return &overviewEvents{from: g.overviews.Subscribe()}, nil
	})
}

// overviewEvents sends the overviews that are encoded once for all streams.
type overviewEvents struct {
	from  *endpoint.Subscriber[[]byte]
	event []byte
}

func (e *overviewEvents) Begin(*endpoint.EventStream) error { return nil }

func (e *overviewEvents) Wait(ctx context.Context) (err error) {
	e.event, err = e.from.Next(ctx)
	return err
}

func (e *overviewEvents) Send(_ context.Context, stream *endpoint.EventStream) error {
	return stream.Write(e.event)
}

func (e *overviewEvents) Idle(stream *endpoint.EventStream) error { return stream.Comment() }

func (e *overviewEvents) Close() { e.from.Leave() }

// publishOverviews publishes an overview at the end of each interval of samples, by the database's clock.
func (g *Gateway) publishOverviews(ctx context.Context, to *endpoint.Production[[]byte]) error {
	for ctx.Err() == nil {
		event, at := g.overviewEvent(context.WithoutCancel(ctx))
		to.Publish(endpoint.EncodeEvent(new(at.UnixMilli()), api.EventOverview, event))
		select {
		case <-time.After(untilIntervalEnds(at)):
		case <-ctx.Done():
		}
	}
	return ctx.Err()
}

// untilIntervalEnds is the time to the end of the interval that contains at, and a little more, in which the last
// samples are committed.
func untilIntervalEnds(at time.Time) time.Duration {
	const interval, little = store.SampleInterval, 50 * time.Millisecond
	return interval + little - time.Duration(at.UnixNano())%interval
}

func (g *Gateway) overviewEvent(ctx context.Context) (api.OverviewEvent, time.Time) {
	known, failed := g.readOverview(ctx)
	event := api.OverviewEvent{At: api.Time{Time: known.at()}}
	if failed == nil {
		points, _ := g.history.points(known.at(), store.SampleInterval)
		event.Point = &points[0]
	}
	event.OverviewState = g.overviewState(known, failed)
	return event, known.at()
}
