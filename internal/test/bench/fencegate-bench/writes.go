//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/fencegate/fencegate/internal/test/bench/rig"
	"github.com/fencegate/fencegate/internal/test/testenv/gateway"
)

type writesCmd struct {
	rig.Servers
	rig.Pace `set:"clients=1,8,64,256" set:"rounds=3" set:"duration=2s" set:"warmup=500ms"` //nolint:staticcheck // kong takes several "set"

	Measure     []string  `help:"What to measure: ${enum}." enum:"throughput,latency,sizes,fences,refusals,flush" default:"throughput,refusals,flush"`
	Targets     []string  `help:"What takes part: ${enum}." enum:"${writes}" default:"${writes}"`
	Gateways    []int     `help:"Throughput: numbers of gateways to measure http with, too, which its clients take turns between." placeholder:"2,4"`
	Resources   int       `help:"How many resources are written to; 0: none." default:"10000"`
	Hot         int       `help:"How many hot resources are written to after that; 0: none." default:"16"`
	Sizes       []int     `help:"Sizes: the sizes of values." default:"64,256,1024,4096,16384,65536,262144,1048576"`
	Fences      []int     `help:"Fences: how many there are." default:"1000,10000,100000,1000000"`
	ZombieRates []float64 `help:"Refusals: how many writes a second zombies make beside honest writers; 0: as many as they can." default:"1000,10000,0"`
}

const (
	// valueBytes is the size of values where it is not what is measured.
	valueBytes = 256
	// flushDelay is how much longer each flush of a private PostgreSQL takes where that is measured.
	flushDelay = time.Millisecond
	flushTable = "each flush 1ms slower"
)

// Validate is called by kong.
func (c writesCmd) Validate() error {
	const valueBytesMax = 1 << 20
	switch {
	case slices.Min(c.Sizes) < 8 || slices.Max(c.Sizes) > valueBytesMax:
		return fmt.Errorf("--sizes must be 8 to %d", valueBytesMax)
	case c.Resources < 0 || c.Hot < 0 || c.Resources+c.Hot == 0:
		return errors.New("--resources and --hot must not be negative, and one of them positive")
	case len(c.Gateways) > 0 && slices.Min(c.Gateways) < 2 || slices.Min(c.Fences) < 1:
		return errors.New("--gateways must be at least 2, and --fences positive")
	case slices.Min(c.ZombieRates) < 0:
		return errors.New("--zombie-rates must not be negative")
	}
	return nil
}

// manyConnections are a connection for each of 256 clients, beside the store's and the gateway's.
var manyConnections = map[string]string{"max_connections": "400"}

// Run measures: what slows flushes down with a database of its own, after all else.
func (c *writesCmd) Run(ctx context.Context, to output) error {
	return measure(ctx, to, c.Servers, c.Pace, rig.Private{Settings: manyConnections}, func(r *rig.Rig) error {
		w := &writes{Rig: r, config: c}
		if !slices.Equal(c.Measure, []string{"flush"}) {
			if err := w.open(ctx); err != nil {
				return err
			}
		}
		for _, measure := range c.Measure {
			var err error
			switch measure {
			case "throughput":
				err = w.throughput(ctx, "throughput")
			case "latency":
				err = w.latency(ctx)
			case "sizes":
				err = w.sizes(ctx)
			case "fences":
				err = w.fences(ctx)
			case "refusals":
				err = w.refusals(ctx)
			case "flush":
				_, err = r.TakesPart("flush", c.slowed(ctx, r, to))
			}
			if err != nil {
				return fmt.Errorf("%s: %w", measure, err)
			}
		}
		return nil
	}, c.goals)
}

// flushTargets are those whose flushes can be slowed down: they write to PostgreSQL.
var flushTargets = []string{"direct", "handmade", "store", "http"}

// slowed measures the throughput on many resources with slow flushes, and adds it to the report of r.
func (c *writesCmd) slowed(ctx context.Context, r *rig.Rig, to output) (err error) {
	config := *c
	config.Hot, config.Gateways = 0, nil
	config.Targets = slices.DeleteFunc(slices.Clone(flushTargets), func(name string) bool {
		return !slices.Contains(c.Targets, name)
	})
	slow, err := rig.Open(ctx, c.Servers, c.Pace, rig.Private{Settings: manyConnections, FlushDelay: flushDelay}, to.err)
	defer func() { err = errors.Join(err, slow.Close()) }()
	if err != nil || len(config.Targets) == 0 {
		return err
	}
	w := &writes{Rig: slow, config: &config}
	if err := w.open(ctx); err != nil {
		return err
	}
	if err := w.throughput(ctx, flushTable); err != nil {
		return err
	}
	r.Report.Samples = append(r.Report.Samples, slow.Report.Samples...)
	r.Report.Failed = append(r.Report.Failed, slow.Report.Failed...)
	return nil
}

func resourcesName(resources, clients int) string {
	return fmt.Sprintf("%d resources, %s", resources, clientsName(clients))
}

// goals are ratios within one round; the median over the rounds counts.
func (c *writesCmd) goals(r rig.Report) (goals []rig.Goal) {
	add := func(table string, resources, clients int, of, to string, limit float64) {
		goals = append(goals, rig.Goal{Name: fmt.Sprintf("%s, %s: %s / %s", table, resourcesName(resources, clients), of, to),
			Limit: limit, Figure: r.Ratio(table, resourcesName(resources, clients), of, to, rig.PerSecond)})
	}
	for _, g := range []struct {
		clients int
		of, to  string
		limit   float64
	}{
		{1, "store", "direct", 0.85}, {8, "store", "direct", 1}, {64, "store", "direct", 2.5}, {256, "store", "direct", 3.5},
		{64, "http", "direct", 1.2}, {256, "http", "direct", 1.5}, {64, "array", "direct", 4},
		{256, "array", "direct", 4.8},
		{64, "store", "handmade", 7}, {64, "store", "etcd", 6}, {64, "http", "etcd", 1.5},
		{256, "store", "handmade", 7}, {256, "store", "etcd", 6}, {256, "http", "etcd", 1.5},
		{256, "store", "redis", 1}, {256, "store", "zookeeper", 1}, {256, "store", "store-unfenced", 0.8},
		{256, "http-key", "http", 0.95}, {256, "http-tls", "http", 0.8},
	} {
		add("throughput", c.Resources, g.clients, g.of, g.to, g.limit)
	}
	add("throughput", c.Hot, 256, "store", "direct", 5)
	add("throughput", c.Hot, 256, "array", "direct", 2.4)
	for clients, limit := range map[int]float64{1: 0.95, 8: 0.95, 64: 1, 256: 1} {
		add(flushTable, c.Resources, clients, "store", "direct", limit)
	}
	goals = append(goals, rig.Goal{Name: "p99 of store / p99 of direct, 64 clients", Limit: 1, AtMost: true,
		Figure: r.Ratio("throughput", resourcesName(c.Resources, 64), "store", "direct", rig.P99)})
	most := clientsName(slices.Max(c.Clients))
	goals = append(goals, rig.Goal{Name: "refused / empty handler", Limit: 0.7,
		Figure: r.Ratio(refusedTable, most, "refused", "floor", rig.PerSecond)})
	for _, rate := range c.ZombieRates {
		goals = append(goals, rig.Goal{Name: "http, " + besideZombies(rate) + " / " + honestAlone, Limit: 0.8,
			Figure: r.Ratio(honestTable, most, besideZombies(rate), honestAlone, rig.PerSecond)})
	}
	return goals
}

// writes is all that runs while something is measured.
type writes struct {
	*rig.Rig
	config *writesCmd

	gateway *gateway.Process
	layouts []layout
	targets []writeTarget
}

// writeTarget makes one write after the other.
type writeTarget struct {
	name string
	// tuned, perRequest and servers are as in rig.Target.
	tuned      []int
	perRequest int
	servers    []int
	open       func(ctx context.Context, s setting) (writeSession, error)
}

// setting is what a target is opened for.
type setting struct {
	layout               layout
	clients, connections int
}

func (s setting) shared() bool { return s.layout.shared(s.clients) }

// writeSession is a target in use. All clients call write at the same time, each with its own writer.
type writeSession struct {
	write func(ctx context.Context, client int, w *writer) error
	close func() error
}

// on is the target, written to the resources of a layout.
func (t writeTarget) on(l layout, base string) rig.Target {
	return rig.Target{Name: t.name, Base: base, Tuned: t.tuned, PerCall: t.perRequest, Servers: t.servers,
		Open: func(ctx context.Context, clients, connections int) (rig.Session, error) {
			opened, err := t.open(ctx, setting{l, clients, connections})
			writers := l.writers(clients)
			return rig.Session{Close: opened.close, Do: func(ctx context.Context, client, _ int) error {
				return opened.write(ctx, client, writers[client])
			}}, err
		}}
}

// compare measures targets on a layout with so many clients, in turn.
func (w *writes) compare(ctx context.Context, c rig.Case, l layout, targets []writeTarget) error {
	var all []rig.Target
	for _, t := range targets {
		all = append(all, t.on(l, "direct"))
	}
	return w.Compare(ctx, c, all)
}

// only are those of the targets that take part.
func (w *writes) only(names ...string) []writeTarget {
	return slices.DeleteFunc(slices.Clone(w.targets), func(t writeTarget) bool { return !slices.Contains(names, t.name) })
}

// throughput measures all targets, with every number of clients, on every layout.
func (w *writes) throughput(ctx context.Context, table string) error {
	for _, l := range w.layouts {
		if err := w.prime(ctx, l); err != nil {
			return err
		}
		for _, clients := range w.Clients {
			c := rig.Case{Table: table, Name: resourcesName(len(l.resources), clients), Clients: clients}
			if err := w.compare(ctx, c, l, w.targets); err != nil {
				return err
			}
		}
	}
	return nil
}

// prime has each target write once to every resource, so that all that is measured replaces a record.
func (w *writes) prime(ctx context.Context, l layout) error {
	const primeClients = 16
	clients := min(primeClients, len(l.resources))
	for _, t := range w.targets {
		opened, err := t.open(ctx, setting{l, clients, clients})
		if err != nil {
			return fmt.Errorf("%s: %w", t.name, err)
		}
		var running errgroup.Group
		for client, of := range l.writers(clients) {
			running.Go(func() error {
				for of.turn < len(of.resources) {
					if err := opened.write(ctx, client, of); err != nil {
						return err
					}
				}
				return nil
			})
		}
		if err := errors.Join(running.Wait(), opened.close()); err != nil {
			return fmt.Errorf("%s: %w", t.name, err)
		}
	}
	return nil
}

// someClients write where the number of clients is not what is measured.
func (w *writes) someClients() int { return min(64, slices.Max(w.Clients)) }

// latency measures what a write takes when the load is a given one and not what the clients can: half of what each
// target can, which is found first, and half of what direct can, for all alike. See rig.RepeatAtRate.
func (w *writes) latency(ctx context.Context) error {
	const full = "as fast as they can"
	l, targets := w.layouts[0], w.only("direct", "handmade", "store", "http")
	if err := w.prime(ctx, l); err != nil {
		return err
	}
	for _, load := range []string{full, "at half of that", "at half of direct's rate"} {
		c := rig.Case{Table: "latency", Name: clientsName(w.someClients()) + ", " + load, Clients: w.someClients(),
			First: rig.P50, Rates: map[string]float64{}}
		for _, t := range targets {
			of := t.name
			if strings.Contains(load, "direct") {
				of = "direct"
			}
			if load != full {
				c.Rates[t.name] = w.Report.Spread("latency", clientsName(w.someClients())+", "+full, of, rig.PerSecond).Median / 2
			}
		}
		if err := w.compare(ctx, c, l, targets); err != nil {
			return err
		}
	}
	return nil
}

// sizes measures values of every size.
func (w *writes) sizes(ctx context.Context) error {
	const sizesBytesMax = 256 << 20 // of all the records of one target
	if err := w.prime(ctx, w.layouts[0]); err != nil {
		return err
	}
	for _, size := range w.config.Sizes {
		l := w.layouts[0]
		l.valueBytes = size
		l.resources = l.resources[:min(len(l.resources), max(64, sizesBytesMax/size))]
		c := rig.Case{Table: "sizes", Name: fmt.Sprintf("%d bytes, %s", size, clientsName(w.someClients())),
			Clients: w.someClients()}
		if err := w.compare(ctx, c, l, w.only("direct", "store", "http")); err != nil {
			return err
		}
	}
	return nil
}

// fences measures writes to ever more resources, in no order, each of which has been written before.
func (w *writes) fences(ctx context.Context) error {
	for _, count := range w.config.Fences {
		w.Progress("making %d fences with their records", count)
		l, err := w.fill(ctx, count)
		if err != nil {
			return err
		}
		clients := min(w.someClients(), count)
		c := rig.Case{Table: "fences", Name: fmt.Sprintf("%d fences, %s", count, clientsName(clients)), Clients: clients}
		if err := w.compare(ctx, c, l, w.only("direct", "store", "http")); err != nil {
			return err
		}
	}
	return nil
}
