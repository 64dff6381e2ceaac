//go:build unix

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/fencegate/fencegate/internal/bench/rig"
)

type cpuCmd struct {
	rig.Servers
	rig.Pace `set:"clients=1" set:"rounds=20" set:"duration=500ms" set:"warmup=100ms"` //nolint:staticcheck // kong takes several "set"

	Idle time.Duration `help:"How long PostgreSQL's CPU time without calls is observed, which is not counted for calls; 0: all is counted." default:"10s"`
}

// Help is shown by --help.
func (cpuCmd) Help() string {
	return "PostgreSQL's CPU time for a call, as a multiple of that for a bare upsert in the same round: an acquire " +
		"and a release, a write and a hand-over through a gateway, and a transaction on a protected table. CPU time hardly " +
		"depends on what else the machine does. " + quoteRatios
}

const (
	cpuTable = "PostgreSQL's CPU time for a call"
	// handOverClients share one lock, so that there is always one that waits.
	handOverClients = 4
)

// Run measures.
func (c *cpuCmd) Run(ctx context.Context, to output) error {
	return measure(ctx, to, c.Servers, c.Pace, rig.Private{Settings: manyConnections}, func(r *rig.Rig) error {
		const resources = 1000
		t := &tables{Rig: r, rows: resources * rowsOfResource}
		if err := t.prepare(ctx); err != nil {
			return err
		}
		w := &writes{Rig: r, config: &writesCmd{Resources: resources, ValueBytes: 256}}
		if err := w.Execute(ctx, plainTables[2]); err != nil {
			return err
		}
		gateway, err := r.Gateway(ctx)
		if err != nil {
			return err
		}
		l, err := w.acquireLayout(ctx, "many", resources, false)
		if err != nil {
			return err
		}
		upsert := w.direct().on(l, w.config.ValueBytes, "upsert")
		put := w.overWires([]string{gateway.URL}, clientAccess{}, putting, gateway.PID()).on(l, w.config.ValueBytes, "upsert")
		locks := service{name: "fencegate", servers: []int{gateway.PID()},
			connect: func(_ context.Context, client int) (locker, error) {
				return newGatewayLocker(gateway.URL, fmt.Sprintf("bench-%d", client), false)
			}}
		lone := locks.cycle(r.Prefix+"/lone", ownLocks, "upsert")
		handOver := locks.cycle(r.Prefix+"/handed", oneLock, "upsert")
		handOver.Clients = handOverClients
		protected := t.target(writeTransactions[3])
		protected.Base = "upsert"
		upsert.Name, put.Name, lone.Name, handOver.Name = "upsert", "write", "acquire and release",
			"hand-over to the next waiter"
		protected.Name = "protected transaction"

		if c.Idle > 0 {
			r.Progress("nothing happens for %s", c.Idle)
			if r.Background, _, err = r.Idle(ctx, c.Idle, nil); err != nil {
				return err
			}
		}
		for _, clients := range r.Clients {
			targets := []rig.Target{upsert, put, lone, handOver, protected}
			if err := r.Compare(ctx, rig.Case{Table: cpuTable, Name: clientsName(clients), Clients: clients,
				First: rig.PostgresCPU},
				targets); err != nil {
				return err
			}
		}
		return nil
	}, nil)
}
