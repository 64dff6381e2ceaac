//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/fencegate/fencegate/internal/test/bench/rig"
)

const (
	refusedTable = "refusals: zombies"
	honestTable  = "refusals: honest writers"
	honestAlone  = "alone"
)

func besideZombies(rate float64) string {
	if rate == 0 {
		return "beside zombies, as fast as they can"
	}
	return fmt.Sprintf("beside zombies, %.0f writes/s", rate)
}

// refused makes writes with stale tokens: a refusal is what is expected.
func refused(_ setting, wire *wire, w *writer) error {
	return wire.put(w, true, http.StatusPreconditionFailed)
}

// refusals measures how many zombies' writes are refused a second, beside the empty handler's rate, and what honest
// writers are left with while zombies hammer. The zombies' leases were released and granted to others.
func (w *writes) refusals(ctx context.Context) error {
	if len(w.only("http")) == 0 {
		return nil
	}
	if err := w.prime(ctx, w.layouts[0]); err != nil {
		return err
	}
	stale, err := w.acquireLayout(ctx, "zombies", min(1000, len(w.layouts[0].resources)), true)
	if err != nil {
		return err
	}
	undelayed, err := w.Gateway(ctx, "--refusal-delay-max", "0s")
	if err != nil {
		return err
	}
	clients := slices.Max(w.Clients)
	c := rig.Case{Table: refusedTable, Name: clientsName(clients), Clients: clients}
	zombies := w.through(refused, undelayed)
	zombies.name = "refused"
	var targets []rig.Target
	for _, t := range append(w.only("floor"), zombies) {
		targets = append(targets, t.on(stale, "floor"))
	}
	if err := w.Compare(ctx, c, targets); err != nil {
		return err
	}
	zombies = w.through(refused, w.gateway)
	honest := w.only("http")[0].on(w.layouts[0], honestAlone)
	honest.Name = honestAlone
	targets = []rig.Target{honest}
	for _, rate := range w.config.ZombieRates {
		targets = append(targets, beside(honest, zombies.on(stale, ""), rate))
	}
	c.Table = honestTable
	return w.Compare(ctx, c, targets)
}

// beside is the honest target while as many zombies hammer.
func beside(honest, zombies rig.Target, rate float64) rig.Target {
	const longer = 24 * time.Hour // than any measurement
	alone := honest.Open
	honest.Name = besideZombies(rate)
	honest.Open = func(ctx context.Context, clients, connections int) (rig.Session, error) {
		writing, err := alone(ctx, clients, connections)
		if err != nil {
			return writing, err
		}
		hammering, stop := context.WithCancel(ctx)
		hammer, err := zombies.Open(hammering, clients, connections)
		if err != nil {
			stop()
			return writing, errors.Join(err, writing.Close())
		}
		ended := make(chan error, 1)
		go func() {
			var err error
			if rate > 0 {
				_, err = rig.RepeatAtRate(hammering, clients, rate, longer, hammer.Do)
			} else {
				_, err = rig.Repeat(hammering, clients, longer, hammer.Do)
			}
			ended <- err
		}()
		return rig.Session{Do: writing.Do, Close: func() error {
			stop()
			err := <-ended
			if errors.Is(err, context.Canceled) {
				err = nil
			}
			return errors.Join(err, hammer.Close(), writing.Close())
		}}, nil
	}
	return honest
}
