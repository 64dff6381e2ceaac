package gateway

import (
	"context"
	"fmt"
	"time"

	"github.com/fencegate/fencegate/store"
)

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
