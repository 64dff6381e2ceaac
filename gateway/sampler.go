package gateway

import (
	"context"
	"fmt"
	"time"

	"github.com/fencegate/fencegate/store"
)

// sampleTimeout bounds a sample: one that comes late is no worse than the next.
const sampleTimeout = 5 * time.Second

// Sampler tells the database, every SampleInterval, how its gateway is and what it did, and has it counted what there is. So any gateway
// can show how all of them are. It is one goroutine; writes pay nothing for it but being counted.
type Sampler struct {
	gateway *Gateway
}

// NewSampler returns a Sampler of gateway that waits to be Run.
func NewSampler(gateway *Gateway) *Sampler { return &Sampler{gateway} }

// Run samples until ctx ends, and then once more; it leaves the list of gateways with that. It tells onError of what failed: what was not
// told then, the next sample tells.
func (s *Sampler) Run(ctx context.Context, onError func(error)) {
	wait := time.Duration(0)
	for {
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			s.leave(context.WithoutCancel(ctx), onError)
			return
		}
		at, err := s.Sample(ctx)
		if err != nil {
			at = time.Now()
			if ctx.Err() == nil {
				onError(err)
			}
		}
		wait = untilNextSample(at)
	}
}

// untilNextSample is the time to the middle of the next interval, by the clock that says at: all gateways sample once in each interval, so that
// none is counted twice in one, and not in the next.
func untilNextSample(at time.Time) time.Duration {
	const interval = store.SampleInterval
	wait := interval/2 - time.Duration(at.UnixNano())%interval
	for wait < interval/4 {
		wait += interval
	}
	return wait
}

// Sample tells once. It returns when that was, by the database's clock, or ErrUnavailable.
func (s *Sampler) Sample(ctx context.Context) (at time.Time, err error) {
	ctx, cancel := context.WithTimeout(ctx, sampleTimeout)
	defer cancel()
	at, err = s.keep(ctx)
	if err == nil {
		_, err = s.gateway.backend.Recount(ctx)
	}
	if _, failed := s.gateway.lookOver(ctx); err == nil {
		err = failed
	}
	return at, err
}

func (s *Sampler) keep(ctx context.Context) (time.Time, error) {
	g := s.gateway
	totals, err := g.metrics.totals()
	if err != nil {
		return time.Time{}, fmt.Errorf("read the metrics: %w", err)
	}
	return g.backend.KeepSample(ctx, g.selfState(), time.Since(g.started), totals)
}

// leave tells what is left to tell, and that this gateway is no more.
func (s *Sampler) leave(ctx context.Context, onError func(error)) {
	ctx, cancel := context.WithTimeout(ctx, sampleTimeout)
	defer cancel()
	_, err := s.keep(ctx)
	if err == nil {
		err = s.gateway.backend.ForgetGateway(ctx, s.gateway.backend.GatewayID())
	}
	if err != nil {
		onError(err)
	}
}
