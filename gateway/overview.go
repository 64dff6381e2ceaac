package gateway

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/store"
)

const (
	rangeDefault = 5 * time.Minute
	// overviewTimeout bounds the reading of an overview: whoever looks on wants to know soon that the database does not answer.
	overviewTimeout = 3 * time.Second
)

func (g *Gateway) getOverview(w http.ResponseWriter, r *http.Request) error {
	length, err := readRange(r)
	if err != nil {
		return err
	}
	ctx, cancel := g.work(r)
	defer cancel()
	known, failed := g.lookOver(ctx)
	answer := api.Overview{
		At: api.Time{Time: known.at()}, StepMS: store.HistoryStep(length).Milliseconds(),
		OverviewState: g.overviewState(known, failed),
	}
	if answer.Points, err = g.overviewPoints(ctx, length, failed); err != nil {
		return err
	}
	answer.RangeMS = int64(len(answer.Points)) * answer.StepMS
	return answerJSON(w, http.StatusOK, answer)
}

func readRange(r *http.Request) (time.Duration, error) {
	values, err := query(r, "range_ms")
	if err != nil {
		return 0, err
	}
	text := values.Get("range_ms")
	if text == "" {
		return rangeDefault, nil
	}
	ms, err := strconv.ParseInt(text, 10, 64)
	if err != nil || ms < store.HistoryMin.Milliseconds() || ms > store.HistoryMax.Milliseconds() {
		return 0, invalid("range_ms must be an integer from %d to %d.", store.HistoryMin.Milliseconds(), store.HistoryMax.Milliseconds())
	}
	return time.Duration(ms) * time.Millisecond, nil
}

// overviewPoints are those of the database, or as many of which nothing is known.
func (g *Gateway) overviewPoints(ctx context.Context, length time.Duration, failed error) ([]api.OverviewPoint, error) {
	var points []store.Point
	if failed == nil {
		ctx, cancel := context.WithTimeout(ctx, overviewTimeout)
		defer cancel()
		if points, failed = g.backend.Points(ctx, length); failed != nil && !isUnavailable(failed) {
			return nil, failed
		}
	}
	if failed != nil {
		points = unknownPoints(length)
	}
	answer := make([]api.OverviewPoint, len(points))
	for i := range points {
		answer[i] = pointAnswer(&points[i])
	}
	return answer, nil
}

func unknownPoints(length time.Duration) []store.Point {
	step := store.HistoryStep(length)
	points := make([]store.Point, (length+step-1)/step)
	until := time.Now().Truncate(store.SampleInterval)
	for i := range points {
		points[i].At = until.Add(-time.Duration(len(points)-i) * step)
	}
	return points
}

func pointAnswer(point *store.Point) api.OverviewPoint {
	answer := api.OverviewPoint{At: api.Time{Time: point.At}}
	if !point.Sampled {
		return answer
	}
	answer.OverviewRates = &api.OverviewRates{
		AcceptedPerS: point.Accepted, FailedPerS: point.Failed, RejectedPerS: make(map[api.Code]float64, len(point.Rejected)),
		P50MS: quantileMS(&point.Took, 0.5), P99MS: quantileMS(&point.Took, 0.99),
	}
	for verdict, perS := range point.Rejected {
		answer.RejectedPerS[api.Code(verdict)] = perS
	}
	return answer
}

func quantileMS(took *store.WriteTimes, q float64) *float64 {
	value, some := took.Quantile(q)
	if !some {
		return nil
	}
	ms := float64(value.Microseconds()) / 1000
	return &ms
}
