//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencegate/fencegate/internal/test/bench/rig"
	"github.com/fencegate/fencegate/internal/test/testenv/gateway"
	"github.com/fencegate/fencegate/lockclient"
	"github.com/fencegate/fencegate/lockclient/api"
	"github.com/fencegate/fencegate/store/postgres"
)

type namesCmd struct {
	rig.Servers

	Names  []int `help:"How many names there are: a database for each. Ratios are to the first." default:"10000,10000000"`
	Rounds int   `help:"How often everything is measured." default:"5"`
	Calls  int   `help:"How many calls of each kind a round takes the median of." default:"100"`
}

// Validate is called by kong.
func (c namesCmd) Validate() error {
	if len(c.Names) < 2 || slices.Min(c.Names) < 1000 || slices.Max(c.Names) > 100_000_000 || c.Rounds < 1 || c.Calls < 1 {
		return errors.New("--names must be two or more, each 1000 to 100000000, and --rounds and --calls positive")
	}
	return nil
}

// Of so many names one had a lease, and one has a lease that runs. Of so many, one without a lease that runs had one
// that a sweep ended.
const (
	leasedOneIn  = 10
	runningOneIn = 200
	expiredOneIn = 100
)

const (
	namesPrefix = "names/"
	namesBatch  = 500_000 // names that are made in one transaction
	// slowCalls are made of what may take long.
	slowCalls = 5
	// slowTimeout lets what reads all names take its time, so that it can be measured.
	slowTimeout = 5 * time.Minute
)

// Run measures.
func (c *namesCmd) Run(ctx context.Context, to output) error {
	return measure(ctx, to, c.Servers, rig.Pace{Rounds: c.Rounds}, rig.Private{}, func(r *rig.Rig) error {
		var databases []*named
		for _, names := range c.Names {
			d, err := openNamed(ctx, r, names, slices.Min(c.Names)/runningOneIn, c.Calls)
			if err != nil {
				return fmt.Errorf("%d names: %w", names, err)
			}
			databases = append(databases, d)
		}
		base := strconv.Itoa(c.Names[0])
		each := func(steps ...func(context.Context, *named) error) func(round, i int) error {
			return func(round, i int) error {
				d := databases[i]
				d.note = func(what, unit string, value float64) {
					r.Note("names, "+unit, what, strconv.Itoa(d.names), base, round, rig.Value{Name: unit, Of: value})
				}
				for _, step := range steps {
					if err := step(ctx, d); err != nil {
						return fmt.Errorf("%d names: %w", d.names, err)
					}
				}
				return nil
			}
		}
		// What clients wait for, what gateways do by themselves, and what reads many names.
		if err := r.InTurn(len(databases), each(useNames, readOneName, lists, ownWork, countNames)); err != nil {
			return err
		}
		r.Rounds = 1 // the rest changes a twentieth of the rows
		if err := r.InTurn(len(databases), each(sizes, vacuums, endLeases)); err != nil {
			return err
		}
		r.Rounds = c.Rounds
		return r.InTurn(len(databases), each(func(ctx context.Context, d *named) error {
			return d.inventory(ctx, fmt.Sprintf("inventory with %d running leases", d.leases))
		}))
	}, nil)
}

// named is a database with so many names, a gateway before it, and other ways to it.
type named struct {
	*rig.Rig

	names, calls int
	leases       int // how many run in the smallest database
	url          string
	control      *pgxpool.Pool
	st           *postgres.Store
	sweeper      *postgres.Sweeper
	client       *lockclient.Client
	random       *rand.Rand
	note         func(what, unit string, value float64)
}

func openNamed(ctx context.Context, r *rig.Rig, names, leases, calls int) (d *named, err error) {
	d = &named{Rig: r, names: names, leases: leases, calls: calls,
		random: rand.New(rand.NewPCG(1, uint64(names)))} //nolint:gosec // an order, not a secret
	if d.url, err = r.OtherDatabase(ctx, fmt.Sprintf("fencegate_bench_%d", names)); err != nil {
		return d, err
	}
	if d.control, err = rig.OpenPool(ctx, d.url, 1); err != nil {
		return d, err
	}
	r.OnEnd(d.control.Close)
	if d.st, err = postgres.Open(ctx, postgres.Config{DatabaseURL: d.url, StatementTimeout: slowTimeout}); err != nil {
		return d, err
	}
	r.OnEnd(d.st.Close)
	if err := d.st.Migrate(ctx); err != nil {
		return d, err
	}
	if d.sweeper, err = postgres.NewSweeper(d.st, postgres.SweeperConfig{}); err != nil {
		return d, err
	}
	if err := d.fill(ctx); err != nil {
		return d, err
	}
	gateway, err := d.start(ctx)
	if err != nil {
		return d, err
	}
	d.client, err = lockclient.New(gateway.URL)
	return d, err
}

func (d *named) start(ctx context.Context) (*gateway.Process, error) {
	return d.Gateway(ctx, "--database-url", d.url, "--statement-timeout", slowTimeout.String())
}

// fill makes the names: every one with a fence and a record; leases that run, and some that ended and are kept as the
// newest of their locks.
func (d *named) fill(ctx context.Context) error {
	for from := 0; from < d.names; from += namesBatch {
		to := min(from+namesBatch, d.names) - 1
		token, err := makeFences(ctx, d.control, namesPrefix, from, to, make([]byte, 100))
		if err != nil {
			return err
		}
		if _, err := d.control.Exec(ctx, `
			insert into fence.leases (lock, fencing_token, lease_id, owner_id, ttl_ms, granted_at, expires_at, check_at, ended_at,
				end_reason, kept)
			select $1 || n, $4::bigint, gen_random_uuid(), 'worker-' || n % 100, 86400000, at, at + interval '1 day',
				at + interval '1 day', case when not runs then at end,
				case when runs then null when n % $7::integer = 0 then 'expired' else 'released' end, not runs
			from generate_series($2::integer, $3::integer) n, lateral (select n % $6::integer = 0 as runs) r,
				lateral (select clock_timestamp() - case when runs then interval '0' else interval '2 hours' end as at) t
			where n % $5::integer = 0`, namesPrefix, from, to, token, leasedOneIn, runningOneIn,
			expiredOneIn); err != nil {
			return fmt.Errorf("make leases: %w", err)
		}
		d.Progress("made %d of %d names", to+1, d.names)
	}
	_, err := d.control.Exec(ctx, "vacuum (analyze) fence.fences, fence.records, fence.leases")
	if err == nil {
		_, err = d.control.Exec(ctx, "checkpoint")
	}
	return err
}

// free is a random name that no lease holds.
func (d *named) free() string {
	for {
		if n := d.random.IntN(d.names); n%runningOneIn != 0 {
			return fmt.Sprint(namesPrefix, n)
		}
	}
}

// repeat notes the median of so many calls.
func (d *named) repeat(what string, calls int, call func() error) error {
	took := make([]time.Duration, calls)
	for i := range took {
		begun := time.Now()
		if err := call(); err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		took[i] = time.Since(begun)
	}
	slices.Sort(took)
	d.note(what, "ms", rig.Percentile(took, 0.5))
	return nil
}

// useNames acquires random names, and then writes to, reads and releases each.
func useNames(ctx context.Context, d *named) error {
	gateway := d.client.API()
	names, leases := make([]string, 0, d.calls), map[string]api.Lease{}
	err := d.repeat("acquire", d.calls, func() error {
		name := d.free()
		for leases[name].LeaseID != "" {
			name = d.free()
		}
		lease, err := gateway.Acquire(ctx, name, api.AcquireRequest{OwnerID: "bench"})
		names, leases[name] = append(names, name), lease
		return err
	})
	if err != nil {
		return err
	}
	for _, step := range []struct {
		what string
		do   func(name string) error
	}{
		{"write", func(name string) error {
			_, err := gateway.Put(ctx, name, benchKey, lockclient.Write{
				Token: api.FencingToken{Token: leases[name].FencingToken}, ContentType: contentType, Value: make([]byte, 100),
			})
			return err
		}},
		{"read a record", func(name string) error {
			_, err := gateway.Get(ctx, name, benchKey)
			return err
		}},
		{"release", func(name string) error { return release(ctx, gateway, leases[name]) }},
	} {
		next := 0
		err := d.repeat(step.what, d.calls, func() error {
			next++
			return step.do(names[next-1])
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// get reads a list.
func (d *named) get(ctx context.Context, path string, query map[string]string, answer any) error {
	return d.client.API().Call(ctx, lockclient.Call{Op: "read " + path, Path: path, Query: query}, answer)
}

// readOneName reads lists of one name, of which there are few entries.
func readOneName(ctx context.Context, d *named) error {
	return errors.Join(d.repeat("leases of a lock", d.calls, func() error {
		return d.get(ctx, "/v1/leases", map[string]string{"lock": d.free()}, nil)
	}), d.repeat("records of a resource", d.calls, func() error {
		_, err := d.client.API().Records(ctx, d.free(), lockclient.RecordsQuery{})
		return err
	}))
}

// lists reads pages of locks.
func lists(ctx context.Context, d *named) error {
	middle := fmt.Sprint(namesPrefix, d.names/2) // in the byte order of names
	var before api.Locks
	if err := d.get(ctx, "/v1/locks", map[string]string{"prefix": middle, "limit": "1"}, &before); err != nil {
		return err
	}
	held := strconv.Itoa(min(d.leases, 100)) // so that the page has as many locks in every database
	for _, list := range []struct {
		what  string
		query map[string]string
		calls int
	}{
		{"locks: the first page", map[string]string{"limit": "100"}, d.calls},
		{"locks: a page in the middle", map[string]string{"cursor": before.NextCursor}, d.calls},
		{"locks by prefix", map[string]string{"prefix": middle[:len(namesPrefix)+1]}, d.calls},
		{"locks that are held: the first page", map[string]string{"state": "held", "limit": held}, d.calls},
		{"locks by contains, found among the first", map[string]string{"contains": "99"}, slowCalls},
	} {
		err := d.repeat(list.what, list.calls, func() error {
			var page api.Locks
			err := d.get(ctx, "/v1/locks", list.query, &page)
			if err == nil && len(page.Locks) == 0 {
				err = errors.New("the page is empty")
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// countNames reads all names.
func countNames(ctx context.Context, d *named) error {
	return d.repeat("number of locks (count=true)", 1, func() error {
		var page api.Locks
		err := d.get(ctx, "/v1/locks", map[string]string{"count": "true", "limit": "1"}, &page)
		if err == nil && (page.Total == nil || *page.Total != int64(d.names)) {
			err = fmt.Errorf("the total is %v of %d", page.Total, d.names)
		}
		return err
	})
}

// ownWork is what gateways do without being called: they start, sweep, and count what there is.
func ownWork(ctx context.Context, d *named) error {
	err := d.repeat("sweep, its statements together", slowCalls, func() error {
		_, err := d.sweeper.Sweep(ctx)
		return err
	})
	if err != nil {
		return err
	}
	var started *gateway.Process
	err = d.repeat("a gateway from its start to ready", 1, func() (err error) {
		started, err = d.start(ctx)
		return err
	})
	if err != nil {
		return err
	}
	if err := started.Stop(); err != nil {
		return err
	}
	return d.inventory(ctx, "inventory")
}

func (d *named) inventory(ctx context.Context, what string) error {
	return d.repeat(what, slowCalls, func() error {
		for { // it is due again at once, and the gateway may be faster
			if _, err := d.control.Exec(ctx, "update fence.inventory set due_at = '-infinity'"); err != nil {
				return err
			}
			if counted, err := d.st.Recount(ctx); counted || err != nil {
				return err
			}
		}
	})
}

// endLeases leaves as many leases that run as the smallest database has.
func endLeases(ctx context.Context, d *named) error {
	_, err := d.control.Exec(ctx, `
		update fence.leases l set ended_at = clock_timestamp(), end_reason = 'released', kept = true
		where l.ended_at is null and l.lock not in (
			select k.lock from fence.leases k where k.ended_at is null order by k.lock limit $1)`, d.leases)
	if err == nil {
		_, err = d.control.Exec(ctx, "vacuum (analyze) fence.leases")
	}
	return err
}

// sizes are of tables with their indexes, for each row. Nothing has been changed but what the rounds used.
func sizes(ctx context.Context, d *named) error {
	for _, table := range []string{"fences", "records", "leases"} {
		var bytes float64
		err := d.control.QueryRow(ctx,
			"select pg_total_relation_size('fence."+table+"')::float8 / count(*) from fence."+table).Scan(&bytes)
		if err != nil {
			return err
		}
		d.note("disk, a row of "+table, "bytes", bytes)
	}
	return nil
}

// vacuums change a twentieth of the rows of each table, in no order, and vacuum it.
func vacuums(ctx context.Context, d *named) error {
	for table, column := range map[string]string{"fences": "last_version", "records": "version"} {
		_, err := d.control.Exec(ctx, fmt.Sprintf("update fence.%s set %s = %s + 1 where hashtext(resource) %% 20 = 0",
			table, column, column))
		if err != nil {
			return err
		}
		err = d.repeat("vacuum of "+table+" after changes of 5 %", 1, func() error {
			_, err := d.control.Exec(ctx, "vacuum fence."+table)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}
