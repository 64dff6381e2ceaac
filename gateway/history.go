package gateway

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/fencegate/fencegate/lockclient/api"
	"github.com/fencegate/fencegate/store"
)

const (
	// historyMin and historyMax bound the time over which points are shown.
	historyMin = time.Minute
	historyMax = time.Hour
	// pointsMax is the greatest number of points of an overview.
	pointsMax = 150

	historySteps = int64(historyMax/store.SampleInterval) + 1 // and the one that is not whole yet
)

// history is the work of all gateways, and by SQL, in the last hour, in steps of SampleInterval by the database's
// clock. It takes some 600 KiB. Each gateway adds up its own, from the totals that gateways store in the database, and
// so knows nothing from before its start.
//
// A gateway samples once in a step, and the difference to its sample before belongs to that step. After missed samples,
// the difference is spread evenly over the steps since the last one: no write is lost, and none makes a peak.
type history struct {
	started time.Time // of this gateway, by its own clock

	mu    sync.Mutex
	since time.Time                        // the same by the database's clock; zero: nothing was read yet
	last  map[uuid.UUID]store.GatewayState // the newest sample of each gateway; uuid.Nil: of writes by SQL
	sql   sqlHistory
	steps [historySteps]historyStep // a ring: each step is at its number modulo the length
}

// sqlHistory adds up the guards by SQL that there were while they were counted.
type sqlHistory struct {
	at      time.Time // of the last reading
	guards  *int64
	guarded int64
}

// sample returns what was done by SQL as if a gateway had done it. Its time is that of the sweep that counted the
// rejections, however late it came.
func (s *sqlHistory) sample(read store.Overview) store.GatewayState {
	now := read.Database.BySQL
	if read.At.After(s.at) {
		if s.guards != nil && now.Guards != nil {
			s.guarded += max(*now.Guards-*s.guards, 0)
		}
		s.at, s.guards = read.At, now.Guards
	}
	return store.GatewayState{
		StartedAt: time.Unix(0, 0), SeenAt: now.SweptAt, Totals: store.Totals{Accepted: s.guarded, Rejected: now.Rejected},
	}
}

// historyStep is the work in one step, or in several.
type historyStep struct {
	number  int64 // of steps since 1970
	sampled bool

	accepted, failed float64
	rejected         map[store.RejectionClass]float64
	took             writeTimes
}

// stepAt returns the number of the step that contains a time.
func stepAt(at time.Time) int64 { return at.UnixNano() / int64(store.SampleInterval) }

// add adds what the gateways did since the samples that were added before. It ignores older ones. self is this gateway.
func (h *history) add(read store.Overview, self uuid.UUID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.since.IsZero() {
		h.since = read.At.Add(-time.Since(h.started))
	}
	oldest := stepAt(read.At) - historySteps + 1
	for _, now := range append(slices.Clip(read.Gateways), h.sql.sample(read)) {
		before, known := h.last[now.ID]
		if known && !now.SeenAt.After(before.SeenAt) {
			continue
		}
		h.last[now.ID] = now
		if !known && (stepAt(now.StartedAt) < oldest || now.StartedAt.Before(h.since) && now.ID != self) {
			continue // it is unknown how much of its totals it did when
		}
		if !known {
			before.SeenAt = now.StartedAt
		}
		end := stepAt(now.SeenAt)
		begin := min(stepAt(before.SeenAt)+1, end)
		for number := max(begin, oldest); number <= end; number++ {
			h.step(number).addDifference(now.Totals, before.Totals, 1/float64(end-begin+1))
		}
	}
	// A gateway that is not listed may return: a failover can lose the newest rows, which are stored again.
	maps.DeleteFunc(h.last, func(_ uuid.UUID, state store.GatewayState) bool { return stepAt(state.SeenAt) < oldest })
}

func (h *history) step(number int64) *historyStep {
	step := &h.steps[number%historySteps]
	if step.number != number {
		*step = historyStep{number: number}
	}
	return step
}

// points returns the points of at least the length, oldest first, and the time between them. The last one ends with the
// last whole step.
func (h *history) points(now time.Time, length time.Duration) (points []api.OverviewPoint, each time.Duration) {
	const least = pointsMax * store.SampleInterval
	steps := int64((length + least - 1) / least)
	each = time.Duration(steps) * store.SampleInterval
	number := stepAt(now) - steps*int64((length+each-1)/each)
	h.mu.Lock()
	defer h.mu.Unlock()
	for ; number < stepAt(now); number += steps {
		var sum historyStep
		for i := number; i < number+steps; i++ {
			if step := &h.steps[i%historySteps]; step.number == i {
				sum.add(step)
			}
		}
		points = append(points, sum.point(time.Unix(0, number*int64(store.SampleInterval)), each))
	}
	return points, each
}

// lastMinute returns the rates of the sampled steps of the last minute; nil: there are none.
func (h *history) lastMinute(now time.Time) *api.OverviewRates {
	var sum historyStep
	var sampled time.Duration
	h.mu.Lock()
	defer h.mu.Unlock()
	for number := stepAt(now.Add(-time.Minute)); number < stepAt(now); number++ {
		if step := &h.steps[number%historySteps]; step.number == number && step.sampled {
			sum.add(step)
			sampled += store.SampleInterval
		}
	}
	return sum.point(now, sampled).OverviewRates
}

// addDifference adds a part of what one gateway did between two samples.
func (s *historyStep) addDifference(now, before store.Totals, part float64) {
	s.sampled = true
	s.accepted += part * float64(now.Accepted-before.Accepted)
	s.failed += part * float64(now.Failed-before.Failed)
	for class, writes := range now.Rejected {
		s.reject(class, part*float64(max(writes-before.Rejected[class], 0))) // a failover can lose some of those by SQL
	}
	for i, writes := range now.Took {
		s.took[i] += part * float64(writes-before.Took[i])
	}
}

func (s *historyStep) add(other *historyStep) {
	s.sampled = s.sampled || other.sampled
	s.accepted += other.accepted
	s.failed += other.failed
	for class, writes := range other.rejected {
		s.reject(class, writes)
	}
	for i, writes := range other.took {
		s.took[i] += writes
	}
}

func (s *historyStep) reject(class store.RejectionClass, writes float64) {
	if writes == 0 {
		return
	}
	if s.rejected == nil {
		s.rejected = map[store.RejectionClass]float64{}
	}
	s.rejected[class] += writes
}

func (s *historyStep) point(at time.Time, length time.Duration) api.OverviewPoint {
	point := api.OverviewPoint{At: api.Time{Time: at}}
	if !s.sampled {
		return point
	}
	point.OverviewRates = &api.OverviewRates{
		AcceptedPerS: s.accepted / length.Seconds(), FailedPerS: s.failed / length.Seconds(),
		RejectedPerS: map[api.Code]float64{}, RejectedByKindPerS: map[api.RejectionKind]float64{},
		ObservedByKindPerS: map[api.RejectionKind]float64{},
		P50MS:              s.took.quantileMS(0.5), P99MS: s.took.quantileMS(0.99),
	}
	for class, writes := range s.rejected {
		if class.Observed {
			point.ObservedByKindPerS[api.RejectionKind(class.Kind)] += writes / length.Seconds()
			continue
		}
		point.RejectedPerS[api.Code(class.Verdict)] += writes / length.Seconds()
		point.RejectedByKindPerS[api.RejectionKind(class.Kind)] += writes / length.Seconds()
	}
	return point
}

// writeTimes are numbers of accepted writes, by the classes of store.WriteTimes.
type writeTimes [len(store.WriteTimes{})]float64

// quantileMS returns the duration that the share q of the writes did not exceed, interpolated within its class as
// Prometheus does; nil: there were none. For those above all bounds it returns the greatest bound.
func (d *writeTimes) quantileMS(q float64) *float64 {
	var total, below float64
	for _, n := range d {
		total += n
	}
	if total == 0 {
		return nil
	}
	seconds, lower := store.WriteTimeBounds[len(store.WriteTimeBounds)-1], 0.0
	for i, upper := range store.WriteTimeBounds {
		if n := d[i]; n > 0 && below+n >= q*total {
			seconds = lower + (upper-lower)*(q*total-below)/n
			break
		}
		below += d[i]
		lower = upper
	}
	return new(float64(time.Duration(seconds*float64(time.Second)).Microseconds()) / 1000)
}

// sampleTimeout bounds the writing of a sample. A late one is worth no more than the next.
const sampleTimeout = 5 * time.Second

// RunSampler stores the state and the totals of this gateway in the database every SampleInterval, reads those of all
// gateways, and lets the database update the inventory. So any gateway can show all of them. It costs writes only their
// counting. When ctx ends, it samples once more and removes the gateway from the list of gateways. It passes failures to
// onError; the next sample contains the counts of a failed one.
func (g *Gateway) RunSampler(ctx context.Context, onError func(error)) {
	wait := time.Duration(0)
	for {
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			g.leave(context.WithoutCancel(ctx), onError)
			return
		}
		at, err := g.sample(ctx)
		if err != nil {
			at = time.Now()
			if ctx.Err() == nil {
				onError(err)
			}
		}
		wait = untilNextSample(at)
	}
}

// untilNextSample returns the time to the middle of the next interval, by the clock of at. Each gateway samples once in
// each interval, so that none counts twice in one interval and not in the next.
func untilNextSample(at time.Time) time.Duration {
	const interval = store.SampleInterval
	wait := interval/2 - time.Duration(at.UnixNano())%interval
	for wait < interval/4 {
		wait += interval
	}
	return wait
}

// sample samples once. It returns the time by the database's clock, or ErrUnavailable. It reads the overview also where
// nothing can be written, in a time of its own: then the metrics matter most.
func (g *Gateway) sample(ctx context.Context) (at time.Time, err error) {
	at, err = g.keepAndCount(ctx)
	if _, failed := g.readOverview(ctx); err == nil {
		err = failed
	}
	return at, err
}

func (g *Gateway) keepAndCount(ctx context.Context) (at time.Time, err error) {
	ctx, cancel := context.WithTimeout(ctx, sampleTimeout)
	defer cancel()
	if at, err = g.keepSample(ctx); err == nil {
		_, err = g.service.Recount(ctx)
	}
	return at, err
}

func (g *Gateway) keepSample(ctx context.Context) (time.Time, error) {
	totals, err := g.Metrics.Totals()
	if err != nil {
		return time.Time{}, fmt.Errorf("read the metrics: %w", err)
	}
	state := g.selfState()
	state.Totals = totals
	return g.service.KeepSample(ctx, state, time.Since(g.started))
}

// leave stores the last counts, and removes this gateway.
func (g *Gateway) leave(ctx context.Context, onError func(error)) {
	ctx, cancel := context.WithTimeout(ctx, sampleTimeout)
	defer cancel()
	_, err := g.keepSample(ctx)
	if err == nil {
		err = g.service.ForgetGateway(ctx, g.service.GatewayID())
	}
	if err != nil {
		onError(err)
	}
}
