package gateway

import (
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
	points := unknownPoints(known.at(), length)
	if failed == nil {
		var read []store.Point
		if read, failed = g.history.points(ctx, length); failed == nil {
			points = read
		}
	}
	if failed != nil && !isUnavailable(failed) {
		return failed
	}
	step := store.HistoryStep(length).Milliseconds()
	answer := api.Overview{
		At: api.Time{Time: known.at()}, RangeMS: int64(len(points)) * step, StepMS: step,
		OverviewState: g.overviewState(known, failed), Points: make([]api.OverviewPoint, len(points)),
	}
	for i := range points {
		answer.Points[i] = pointAnswer(&points[i])
	}
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

// unknownPoints are as many as there would be, of which nothing is known.
func unknownPoints(now time.Time, length time.Duration) []store.Point {
	step := store.HistoryStep(length)
	points := make([]store.Point, (length+step-1)/step)
	until := now.Truncate(store.SampleInterval)
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
