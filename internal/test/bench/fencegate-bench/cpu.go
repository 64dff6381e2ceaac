//go:build unix

package main

import (
	"context"
	"time"

	"github.com/fencegate/fencegate/internal/test/bench/rig"
	"github.com/fencegate/fencegate/internal/test/testenv/gateway"
)

type cpuCmd struct {
	rig.Servers
	rig.Pace `set:"clients=1" set:"rounds=20" set:"duration=500ms" set:"warmup=100ms"` //nolint:staticcheck // kong takes several "set"

	Idle time.Duration `help:"How long PostgreSQL's CPU time without calls is observed, which is not counted for calls; 0: all is counted." default:"10s"`
}

const cpuTable = "PostgreSQL's CPU time for a call"

// Run measures.
func (c *cpuCmd) Run(ctx context.Context, to output) error {
	return measure(ctx, to, c.Servers, c.Pace, rig.Private{Settings: manyConnections}, func(r *rig.Rig) error {
		const resources = 1000
		t := &tables{Rig: r, rows: resources * rowsOfResource}
		if err := t.prepare(ctx); err != nil {
			return err
		}
		w := &writes{Rig: r}
		if err := w.Execute(ctx, plainTables[2]); err != nil {
			return err
		}
		through, err := r.Gateway(ctx)
		if err != nil {
			return err
		}
		l, err := w.acquireLayout(ctx, "many", resources, false)
		if err != nil {
			return err
		}
		locks := fencegate([]*gateway.Process{through})
		targets := []rig.Target{w.direct().on(l, "upsert"), w.through(putting, through).on(l, "upsert"),
			locks.cycle(r.Prefix+"/lone", ownLocks, "upsert"), locks.cycle(r.Prefix+"/handed", oneLock, "upsert"),
			t.target(writeTransactions[3])}
		for i, name := range []string{"upsert", "write", "acquire and release", "hand-over to the next waiter",
			"protected transaction"} {
			targets[i].Name, targets[i].Base = name, "upsert"
		}
		targets[3].Clients = 4 // who share one lock, so that there is always one that waits

		if c.Idle > 0 {
			r.Progress("nothing happens for %s", c.Idle)
			if r.Background, _, err = r.Idle(ctx, c.Idle, nil); err != nil {
				return err
			}
		}
		for _, clients := range r.Clients {
			err := r.Compare(ctx, rig.Case{Table: cpuTable, Name: clientsName(clients), Clients: clients,
				First: rig.PostgresCPU}, targets)
			if err != nil {
				return err
			}
		}
		return nil
	}, nil)
}
