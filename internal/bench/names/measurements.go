package names

import (
	"context"
	"fmt"
	"time"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/lockclient"
)

// measurement measures one database, and returns a figure or some.
type measurement func(ctx context.Context, d *database) ([]figure, error)

// timed are measured in each round: what clients wait for, what gateways do by themselves, and what reads many names.
var timed = []measurement{useNames, readOneName, lists, sweep, start, inventory, count}

// once are measured after the last round.
var once = []measurement{sizes, vacuums}

// slowCalls are made of what may take long.
const slowCalls = 5

// useNames acquires, writes to, reads and releases random names, one after the other.
func useNames(ctx context.Context, d *database) ([]figure, error) {
	gateway := d.client.API()
	steps := []string{"acquire", "write", "read a record", "release"}
	took := make([][]time.Duration, len(steps))
	for range d.config.Calls {
		name := d.free()
		var lease api.Lease
		for i, step := range []func() error{
			func() (err error) {
				lease, err = gateway.Acquire(ctx, name, api.AcquireRequest{OwnerID: "bench"})
				return err
			},
			func() error {
				_, err := gateway.Put(ctx, name, key, lockclient.Write{
					Token: api.FencingToken{Token: lease.FencingToken}, ContentType: contentType, Value: make([]byte, valueBytes),
				})
				return err
			},
			func() error {
				_, err := gateway.Get(ctx, name, key)
				return err
			},
			func() error {
				return gateway.Release(ctx, name, api.ReleaseRequest{
					OwnerID: lease.OwnerID, LeaseID: lease.LeaseID, FencingToken: lease.FencingToken,
				})
			},
		} {
			begun := time.Now()
			if err := step(); err != nil {
				return nil, fmt.Errorf("%s: %w", steps[i], err)
			}
			took[i] = append(took[i], time.Since(begun))
		}
	}
	figures := make([]figure, len(steps))
	for i, step := range steps {
		figures[i] = median(step, took[i])
	}
	return figures, nil
}

// repeated is the median of so many calls.
func repeated(what string, calls int, call func() error) ([]figure, error) {
	var took []time.Duration
	for range calls {
		begun := time.Now()
		if err := call(); err != nil {
			return nil, fmt.Errorf("%s: %w", what, err)
		}
		took = append(took, time.Since(begun))
	}
	return []figure{median(what, took)}, nil
}

func sweep(ctx context.Context, d *database) ([]figure, error) {
	return repeated("sweep, its statements together", slowCalls, func() error {
		_, err := d.sweeper.Sweep(ctx)
		return err
	})
}

// start starts another gateway, and ends it.
func start(ctx context.Context, d *database) ([]figure, error) {
	begun := time.Now()
	gateway, err := d.start(ctx)
	if err != nil {
		return nil, err
	}
	took := time.Since(begun)
	return []figure{median("a gateway from its start to ready", []time.Duration{took})}, gateway.Stop()
}

// inventory counts what there is. It is due again at once, and the gateway may be faster.
func inventory(ctx context.Context, d *database) ([]figure, error) {
	var took []time.Duration
	for len(took) < slowCalls {
		if _, err := d.control.Exec(ctx, "update fence.inventory set due_at = '-infinity'"); err != nil {
			return nil, err
		}
		begun := time.Now()
		counted, err := d.st.Recount(ctx)
		if err != nil {
			return nil, fmt.Errorf("inventory: %w", err)
		}
		if counted {
			took = append(took, time.Since(begun))
		}
	}
	return []figure{median("inventory", took)}, nil
}

// sizes are of tables with their indexes, for each row. Nothing has been changed but what the rounds used.
func sizes(ctx context.Context, d *database) ([]figure, error) {
	var figures []figure
	for _, table := range tables {
		f := figure{what: "disk, a row of " + table, unit: bytesOfDisk}
		err := d.control.QueryRow(ctx,
			"select pg_total_relation_size('fence."+table+"')::float8 / count(*) from fence."+table).Scan(&f.value)
		if err != nil {
			return nil, err
		}
		figures = append(figures, f)
	}
	return figures, nil
}

// vacuums change a twentieth of the rows of each table, in no order, and vacuum it.
func vacuums(ctx context.Context, d *database) ([]figure, error) {
	var figures []figure
	for _, change := range []struct{ table, sql string }{
		{"fences", "update fence.fences set last_version = last_version + 1 where hashtext(resource) % 20 = 0"},
		{"records", "update fence.records set version = version + 1 where hashtext(resource) % 20 = 0"},
	} {
		if _, err := d.control.Exec(ctx, change.sql); err != nil {
			return nil, err
		}
		vacuumed, err := repeated("vacuum of "+change.table+" after changes of 5 %", 1, func() error {
			_, err := d.control.Exec(ctx, "vacuum fence."+change.table)
			return err
		})
		if err != nil {
			return nil, err
		}
		figures = append(figures, vacuumed...)
	}
	return figures, nil
}
