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
	return target{name: nameRefused, role: roleGateway, pids: pids}.overWires(baseURL, nil,
		func(wires *wires, _ setting) writeFunc {
			return wires.put(true, http.StatusPreconditionFailed, http.StatusPreconditionFailed)
		})
}

// refusals measures how many zombies' writes are refused a second, beside the empty handler's rate, and what honest
// writers are left with while zombies hammer.
func (r *rig) refusals(ctx context.Context) error {
	clients := slices.Max(r.config.Clients)
	zombies, undelayed, err := r.prepareZombies(ctx)
	if err != nil {
		return err
	}
	refused := refusedTarget(r.gatewayURL, r.gatewayPIDs)
	stale := r.setting(zombies, clients)
	if err := r.compare(ctx, Case{Measure: Refusals}, append(r.only(nameFloor), undelayed), stale); err != nil {
		return err
	}
	for round := range r.config.Rounds {
		for _, honest := range r.only(nameHTTP) {
			writing := r.measurement(honest, r.setting(r.layouts[0], clients))
			if _, err := r.sample(ctx, writing, Case{Measure: Refusals, Load: loadAlone}, round+1); err != nil {
				return err
			}
			for _, rate := range r.config.ZombieRates {
				beside := measurement{target: refused, setting: stale, rate: rate}
				c := Case{Measure: Refusals, Load: besideZombies(rate)}
				if err := r.beside(ctx, writing, beside, c, round+1); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// prepareZombies returns what zombies write to, and the target at which their answers are not delayed.
func (r *rig) prepareZombies(ctx context.Context) (zombies layout, undelayed target, err error) {
	if err := r.prime(ctx, r.layouts[0]); err != nil {
		return zombies, undelayed, err
	}
	if zombies, err = r.acquireZombies(ctx); err != nil {
		return zombies, undelayed, err
	}
	undelayed, err = r.undelayed(ctx)
	return zombies, undelayed, err
}

// beside measures the honest while zombies hammer.
func (r *rig) beside(ctx context.Context, honest, zombies measurement, c Case, round int) error {
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
	r.note(c, round, sample)
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
