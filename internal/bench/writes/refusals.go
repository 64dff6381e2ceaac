package writes

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"github.com/fencegate/fencegate/store"
)

// zombieResourcesMax are as many as zombies write to, if there are as many: their leases have been released, and
// granted to others.
const zombieResourcesMax = 1000

// loadAlone is that of honest writers without zombies.
const loadAlone = "honest writers alone"

// refusedTarget makes writes with stale tokens through the gateway: a refusal is what is expected.
func refusedTarget(baseURL string, pids []int) target {
	return target{name: nameRefused, role: roleGateway, pids: pids,
		open: func(ctx context.Context, s setting) (session, error) {
			return putting(ctx, baseURL, s.clients, true, http.StatusPreconditionFailed, http.StatusPreconditionFailed)
		}}
}

// refusals measures how many zombies' writes are refused a second, beside the empty handler's rate, and what honest
// writers are left with while zombies hammer.
func (r *rig) refusals(ctx context.Context, report *Report) error {
	clients := slices.Max(r.config.Clients)
	if err := r.prime(ctx, r.layouts[0]); err != nil {
		return err
	}
	zombies, err := r.acquireZombies(ctx)
	if err != nil {
		return err
	}
	undelayed, err := r.undelayed(ctx)
	if err != nil {
		return err
	}
	refused := refusedTarget(r.gatewayURL, r.gatewayPIDs)
	var measurements []measurement
	for _, t := range append(r.only(nameFloor), undelayed) {
		s := setting{layout: zombies, clients: clients, valueBytes: r.config.ValueBytes}
		measurements = append(measurements, measurement{target: t, setting: s, warmUp: r.config.WarmUp,
			duration: r.config.Duration})
	}
	if err := r.rounds(ctx, Case{Measure: Refusals}, measurements, report); err != nil {
		return err
	}
	for round := range r.config.Rounds {
		for _, honest := range r.only(nameHTTP) {
			s := setting{layout: r.layouts[0], clients: clients, valueBytes: r.config.ValueBytes}
			honestRun := measurement{target: honest, setting: s, warmUp: r.config.WarmUp, duration: r.config.Duration}
			sample, err := honestRun.run(ctx, r.control)
			if err != nil {
				return err
			}
			r.note(Case{Measure: Refusals, Load: loadAlone}, round+1, sample, report)
			for _, rate := range r.config.ZombieRates {
				beside := measurement{target: refused, setting: setting{layout: zombies, clients: clients,
					valueBytes: r.config.ValueBytes}, rate: rate}
				c := Case{Measure: Refusals, Load: besideZombies(rate)}
				if err := r.beside(ctx, honestRun, beside, c, round+1, report); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// beside measures the honest while zombies hammer.
func (r *rig) beside(ctx context.Context, honest, zombies measurement, c Case, round int, report *Report) error {
	opened, err := zombies.target.open(ctx, zombies.setting)
	if err != nil {
		return err
	}
	writers := zombies.setting.layout.writers(zombies.setting.clients, zombies.setting.valueBytes)
	hammering, stop := context.WithCancel(ctx)
	var refused atomic.Int64
	ended := make(chan error, 1)
	go func() {
		do := func(ctx context.Context, client, _ int) error {
			defer refused.Add(1)
			return opened.write(ctx, client, writers[client])
		}
		hammer := zombies
		hammer.duration = honest.warmUp + honest.duration + hammerLonger
		_, err := hammer.load(hammering, do)
		ended <- err
	}()
	sample, err := honest.run(ctx, r.control)
	stop()
	if zombieErr := <-ended; !errors.Is(zombieErr, context.Canceled) {
		err = errors.Join(err, zombieErr)
	}
	if err := errors.Join(err, opened.close()); err != nil {
		return err
	}
	r.note(c, round, sample, report)
	r.config.progress("%d zombies' writes were refused meanwhile", refused.Load())
	return nil
}

func besideZombies(rate float64) string {
	if rate == 0 {
		return "beside zombies, as fast as they can"
	}
	return fmt.Sprintf("beside zombies, %.0f writes/s", rate)
}

// acquireZombies takes leases, gives them back, and lets others have them: the first holders' tokens are stale. It does
// so once.
func (r *rig) acquireZombies(ctx context.Context) (layout, error) {
	if len(r.zombies.resources) > 0 {
		return r.zombies, nil
	}
	count := min(zombieResourcesMax, len(r.layouts[0].resources))
	r.config.progress("making %d zombies", count)
	var err error
	r.zombies, err = acquireLayout(ctx, func(ctx context.Context, name store.Name) (int64, error) {
		request := store.AcquireRequest{Lock: name, OwnerID: "zombie", TTL: store.TTLMax}
		lease, err := r.st.Acquire(ctx, request)
		if err != nil {
			return 0, err
		}
		if err := r.st.Release(ctx, lease.Ref()); err != nil {
			return 0, err
		}
		request.OwnerID = "bench"
		_, err = r.st.Acquire(ctx, request)
		return lease.Token, err
	}, store.Name(r.run+"/zombies"), count, r.config.Connections)
	return r.zombies, err
}

// hammerLonger is how much longer than the measurement zombies write, unless they are stopped.
const hammerLonger = time.Hour
