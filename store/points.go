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
	Rejected         map[Verdict]float64
	// Took is how long accepted writes took.
	Took WriteTimes
}

// HistoryStep is the time between the points of a history of that length: a multiple of SampleInterval.
func HistoryStep(length time.Duration) time.Duration {
	const least = pointsMax * SampleInterval
	return max(1, (length+least-1)/least) * SampleInterval
}

// pointsSQL sums up the samples of each step. The last step ends with the last whole interval of samples, of which all gateways have told.
// A sample counts in the step in which it was taken. One that covers much more than a step, since its gateway could keep none for a
// while, counts with what it is on average: it is no peak.
var pointsSQL = fmt.Sprintf(`
	with bounds as (
		select u.until, u.until - $1::bigint * $2::bigint as since, $2::bigint as step
		from (select floor(extract(epoch from clock_timestamp()) * 1000 / $3::bigint)::bigint * $3::bigint) u (until)
	), sampled as materialized (
		select (floor(extract(epoch from s.at) * 1000)::bigint - b.since) / b.step as number,
			s.accepted, s.failed, s.rejected, s.durations,
			case when s.span_ms > b.step + 2 * $3::bigint then b.step::float8 / s.span_ms else 1 end as part
		from bounds b, fence.samples s
		where s.at >= to_timestamp(b.since::float8 / 1000) and s.at < to_timestamp(b.until::float8 / 1000)
	), sums as (
		select s.number, sum(s.accepted * s.part) as accepted, sum(s.failed * s.part) as failed, array[%s]::bigint[] as durations
		from sampled s group by s.number
	), codes as (
		select s.number, r.key as code, sum(r.value::bigint * s.part) as writes
		from sampled s, jsonb_each_text(s.rejected) r group by s.number, r.key
	), rejected as (
		select c.number, jsonb_object_agg(c.code, c.writes) as writes from codes c group by c.number
	)
	select to_timestamp(b.since::float8 / 1000), s.number, coalesce(s.accepted, 0), coalesce(s.failed, 0), r.writes, s.durations
	from bounds b
	left join sums s on true
	left join rejected r on r.number = s.number`, sumsOfTimes())

// sumsOfTimes has a sum for each class.
func sumsOfTimes() string {
	sums := make([]string, len(WriteTimes{}))
	for i := range sums {
		sums[i] = fmt.Sprintf("sum(s.durations[%d])", i+1)
	}
	return strings.Join(sums, ", ")
}

// Points returns what all gateways did, in steps of HistoryStep that make up at least the length, oldest first. It returns ErrInvalid if the
// length is outside HistoryMin and HistoryMax, or ErrUnavailable.
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
	points := make([]Point, steps)
	var since time.Time
	args := []any{steps, step.Milliseconds(), SampleInterval.Milliseconds()}
	err := s.query(ctx, pointsSQL, args, func(rows pgx.Rows) error {
		var number *int64
		var point Point
		var rejected map[Verdict]float64
		var durations []int64
		if err := rows.Scan(&since, &number, &point.Accepted, &point.Failed, &rejected, &durations); err != nil || number == nil {
			return err
		}
		point.Sampled = true
		point.Accepted /= step.Seconds()
		point.Failed /= step.Seconds()
		point.Rejected = make(map[Verdict]float64, len(rejected))
		for code, writes := range rejected {
			point.Rejected[code] = writes / step.Seconds()
		}
		copy(point.Took[:], durations)
		points[*number] = point
		return nil
	})
	for i := range points {
		points[i].At = since.Add(time.Duration(i) * step)
	}
	return points, err
}

// Quantile is how long the accepted writes took of which the share q were not slower: as Prometheus does it, interpolated between the bounds
// of its class. false: there were none. Of those above all bounds no more is known than the greatest bound.
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
