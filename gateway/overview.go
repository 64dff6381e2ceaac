package gateway

import (
	"context"
	"net/http"
	"time"

	"github.com/gorilla/mux"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/store"
)

const (
	rangeDefault = 5 * time.Minute
	// overviewTimeout bounds the reading of an overview: a dashboard must show soon that the database does not answer.
	overviewTimeout = 3 * time.Second
)

func (g *Gateway) overviewRoutes(router *mux.Router) {
	g.route(router, "/v1/overview/stream", methods{"GET": g.streamOverview})
	g.route(router, "/v1/overview", methods{"GET": g.answering(g.getOverview)})
}

// getOverview answers the state of all gateways and of the database, and their recent history. While the database is
// unreachable, it answers the last known state.
func (g *Gateway) getOverview(ctx context.Context, r *http.Request) (any, error) {
	length, err := readRange(r)
	if err != nil {
		return nil, err
	}
	known, failed := g.readOverview(ctx)
	points := unknownPoints(known.at(), length)
	if failed == nil {
		var read []store.Point
		if read, failed = g.history.points(ctx, length); failed == nil {
			points = read
		}
	}
	if failed != nil && !isUnavailable(failed) {
		return nil, failed
	}
	step := store.HistoryStep(length).Milliseconds()
	return api.Overview{
		At: api.Time{Time: known.at()}, RangeMS: int64(len(points)) * step, StepMS: step,
		OverviewState: g.overviewState(known, failed), Points: convert(points, pointAnswer),
	}, nil
}

func readRange(r *http.Request) (time.Duration, error) {
	p := readParameters(r, "range_ms")
	least, most := int(store.HistoryMin.Milliseconds()), int(store.HistoryMax.Milliseconds())
	ms := p.integer("range_ms", least, most, int(rangeDefault.Milliseconds()))
	if ms < least || ms > most {
		p.fail(invalid("range_ms must be an integer from %d to %d.", least, most))
	}
	return time.Duration(ms) * time.Millisecond, p.err
}

// unknownPoints returns the points of a range without data.
func unknownPoints(now time.Time, length time.Duration) []store.Point {
	step := store.HistoryStep(length)
	points := make([]store.Point, (length+step-1)/step)
	until := now.Truncate(store.SampleInterval)
	for i := range points {
		points[i].At = until.Add(-time.Duration(len(points)-i) * step)
	}
	return points
}

func pointAnswer(point store.Point) api.OverviewPoint {
	answer := api.OverviewPoint{At: api.Time{Time: point.At}}
	if !point.Sampled {
		return answer
	}
	answer.OverviewRates = &api.OverviewRates{
		AcceptedPerS: point.Accepted, FailedPerS: point.Failed,
		RejectedPerS: make(map[api.Code]float64, len(point.Rejected)), RejectedByKindPerS: map[api.RejectionKind]float64{},
		P50MS: quantileMS(&point.Took, 0.5), P99MS: quantileMS(&point.Took, 0.99),
	}
	for verdict, perSecond := range point.Rejected {
		answer.RejectedPerS[api.Code(verdict)] = perSecond
	}
	for kind, perSecond := range point.Kinds {
		answer.RejectedByKindPerS[api.RejectionKind(kind)] = perSecond
	}
	return answer
}

// quantileMS is nil where there were no writes.
func quantileMS(took *store.WriteTimes, q float64) *float64 {
	value, some := took.Quantile(q)
	if !some {
		return nil
	}
	return new(float64(value.Microseconds()) / 1000)
}

// historyFor is how long points answer further requests for the same range.
const historyFor = time.Second

// history reads points and keeps them for a moment, so that the database reads a range at most once a second, however
// many dashboards show it: the points of a day of all gateways are many rows.
type history struct {
	read func(context.Context, time.Duration) ([]store.Point, error)
	turn chan struct{} // a mutex that can be waited for with a context; it guards kept
	kept map[time.Duration]keptPoints
}

type keptPoints struct {
	points []store.Point
	until  time.Time
}

func newHistory(read func(context.Context, time.Duration) ([]store.Point, error)) *history {
	return &history{read: read, turn: make(chan struct{}, 1), kept: map[time.Duration]keptPoints{}}
}

// points returns kept points, or reads them. It returns ErrUnavailable, also if ctx ends before its turn.
func (h *history) points(ctx context.Context, length time.Duration) ([]store.Point, error) {
	select {
	case h.turn <- struct{}{}:
		defer func() { <-h.turn }()
	case <-ctx.Done():
		return nil, store.NotApplied(ctx.Err())
	}
	now := time.Now()
	for other, kept := range h.kept { // few, since reading takes its time
		if kept.until.Before(now) {
			delete(h.kept, other)
		}
	}
	if kept := h.kept[length].points; kept != nil {
		return kept, nil
	}
	points, err := h.read(ctx, length)
	if err == nil {
		h.kept[length] = keptPoints{points, time.Now().Add(historyFor)}
	}
	return points, err
}
