package store

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// HistoryMin and HistoryMax bound the time over which points are shown.
const (
	HistoryMin = time.Minute
	HistoryMax = 24 * time.Hour
)

// pointsMax is how many points a history has, at most.
const pointsMax = 150

// Point is what all gateways did in one step of time, per second.
type Point struct {
	// At is when the step begins.
	At time.Time
	// Sampled says that some gateway sampled in this step; otherwise nothing is known of it.
	Sampled bool

	Accepted, Failed float64
	// Rejected and Kinds have the rejected writes by verdict, and the same by kind.
	Rejected map[Verdict]float64
	Kinds    map[RejectionKind]float64
	// Took is how long accepted writes took.
	Took WriteTimes
}

// HistoryStep is the time between the points of a history of that length: a multiple of SampleInterval.
func HistoryStep(length time.Duration) time.Duration {
	const least = pointsMax * SampleInterval
	return max(1, (length+least-1)/least) * SampleInterval
}

// pointsSQL sums up the samples of each step. The last step ends with the last whole interval of samples, of which all
// gateways have sent. A sample counts in the step in which it was taken. One that covers much more than a step, since
// its gateway could keep none for a while, counts with what it is on average: it is no peak. Steps are looked up one by
// one, in the index on the time: that takes neither a sort nor memory.
var pointsSQL = fmt.Sprintf(`
	with bounds as materialized (
		select u.until - $1::bigint * $2::bigint * interval '1 millisecond' as since, $2::bigint * interval '1 millisecond' as step,
			($2::bigint + 2 * $3::bigint) as span_max
		from (select date_bin($3::bigint * interval '1 millisecond', clock_timestamp(), 'epoch')) u (until)
	), steps as (
		select n as number, b.since + n * b.step as since, b.since + (n + 1) * b.step as until, b.span_max
		from bounds b, generate_series(0, $1::integer - 1) n
	)
	select p.since, t.sampled, t.accepted, t.failed, c.rejected, t.durations
	from steps p
	cross join lateral (
		select count(*) > 0 as sampled, coalesce(sum(s.accepted * s.part), 0) as accepted, coalesce(sum(s.failed * s.part), 0) as failed,
			array[%s]::bigint[] as durations
		from (
			select s.*, case when s.span_ms > p.span_max then $2::float8 / s.span_ms else 1 end as part
			from fence.samples s where s.at >= p.since and s.at < p.until
		) s
	) t
	cross join lateral (
		select jsonb_object_agg(r.code, r.writes) as rejected
		from (
			select e.key as code, sum(e.value::bigint * case when s.span_ms > p.span_max then $2::float8 / s.span_ms else 1 end) as writes
			from fence.samples s, jsonb_each_text(s.rejected) e
			where s.at >= p.since and s.at < p.until and s.rejected <> '{}'
			group by e.key
		) r
	) c
	order by p.number`, sumsOfTimes())

// sumsOfTimes has a sum for each class.
func sumsOfTimes() string {
	sums := make([]string, len(WriteTimes{}))
	for i := range sums {
		sums[i] = fmt.Sprintf("sum(s.durations[%d])", i+1)
	}
	return strings.Join(sums, ", ")
}

// Points returns what all gateways did, in steps of HistoryStep that make up at least the length, oldest first. It
// returns ErrInvalid if the length is outside HistoryMin and HistoryMax, or ErrUnavailable.
func (s *Store) Points(ctx context.Context, length time.Duration) ([]Point, error) {
	if length < HistoryMin || length > HistoryMax {
		return nil, fmt.Errorf("%w: the time is %s, it must be %s to %s", ErrInvalid, length, HistoryMin, HistoryMax)
	}
	step := HistoryStep(length)
	return s.points(ctx, int((length+step-1)/step), step)
}

// LastPoint returns what all gateways did in the last whole interval of samples. It returns ErrUnavailable.
func (s *Store) LastPoint(ctx context.Context) (Point, error) {
	points, err := s.points(ctx, 1, SampleInterval)
	if err != nil {
		return Point{}, err
	}
	return points[0], nil
}

func (s *Store) points(ctx context.Context, steps int, step time.Duration) ([]Point, error) {
	args := []any{steps, step.Milliseconds(), SampleInterval.Milliseconds()}
	return collect(ctx, s.query, pointsSQL, args, func(row pgx.CollectableRow) (point Point, err error) {
		var rejected map[RejectionClass]float64
		var took []*int64
		if err := row.Scan(&point.At, &point.Sampled, &point.Accepted, &point.Failed, &rejected, &took); err != nil {
			return point, err
		}
		point.Accepted /= step.Seconds()
		point.Failed /= step.Seconds()
		point.Rejected, point.Kinds = map[Verdict]float64{}, map[RejectionKind]float64{}
		for class, writes := range rejected {
			point.Rejected[class.Verdict] += writes / step.Seconds()
			point.Kinds[class.Kind] += writes / step.Seconds()
		}
		for i, writes := range took {
			if writes != nil { // there are samples
				point.Took[i] = *writes
			}
		}
		return point, nil
	})
}

// Quantile is how long the accepted writes took of which the share q were not slower: as Prometheus does it,
// interpolated between the bounds of its class. false: there were none. Of those above all bounds no more is known than
// the greatest bound.
func (d *WriteTimes) Quantile(q float64) (time.Duration, bool) {
	var total int64
	for _, n := range d {
		total += n
	}
	if total == 0 {
		return 0, false
	}
	rank := q * float64(total)
	var below float64
	for i, upper := range WriteTimeBounds {
		if n := float64(d[i]); below+n >= rank && n > 0 {
			lower := 0.0
			if i > 0 {
				lower = WriteTimeBounds[i-1]
			}
			return seconds(lower + (upper-lower)*(rank-below)/n), true
		}
		below += float64(d[i])
	}
	return seconds(WriteTimeBounds[len(WriteTimeBounds)-1]), true
}

func seconds(n float64) time.Duration { return time.Duration(n * float64(time.Second)) }
