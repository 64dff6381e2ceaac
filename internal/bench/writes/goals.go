package writes

import (
	"fmt"
	"io"

	"github.com/fencegate/fencegate/internal/bench"
)

// Goals compares what was measured with them. Each figure is a ratio within one round; the median over the rounds
// counts.
func (r Report) Goals() []bench.Goal {
	g := goals{groups: r.groups()}
	many := func(target string, clients int) lineKey {
		return lineKey{Case{Measure: Throughput, Clients: clients, Resources: r.Resources, ValueBytes: r.ValueBytes}, target}
	}
	hot := func(target string, clients int) lineKey {
		return lineKey{Case{Measure: Throughput, Clients: clients, Resources: r.Hot, ValueBytes: r.ValueBytes}, target}
	}
	g.atLeast("store / direct, 256 clients", 3.5, many(nameStore, 256), many(nameDirect, 256))
	g.atLeast("store / direct, 256 clients, hot resources", 5, hot(nameStore, 256), hot(nameDirect, 256))
	g.atLeast("ndjson / direct, 256 clients, hot resources", 2.4, hot(nameNDJSON, 256), hot(nameDirect, 256))
	for _, c := range []struct {
		clients int
		limit   float64
	}{{1, 0.85}, {8, 1}, {64, 2.5}} {
		g.atLeast(fmt.Sprintf("store / direct, %d clients", c.clients), c.limit, many(nameStore, c.clients),
			many(nameDirect, c.clients))
	}
	g.atLeast("store / Redis with fsync always, 256 clients", 1, many(nameStore, 256), many(nameRedis, 256))
	g.atLeast("store / ZooKeeper, 256 clients", 1, many(nameStore, 256), many(nameZooKeeper, 256))
	g.atLeast("http / direct, 256 clients", 1.5, many(nameHTTP, 256), many(nameDirect, 256))
	g.atLeast("http / direct, 64 clients", 1.2, many(nameHTTP, 64), many(nameDirect, 64))
	g.bulk("ndjson / direct, the most of each", 4, r)
	g.atMost("store without the check / store, 256 clients", 1.25, perSecond, many(nameStoreUnfenced, 256),
		many(nameStore, 256))
	for _, clients := range []int{64, 256} {
		g.atLeast(fmt.Sprintf("store / handmade, %d clients", clients), 7, many(nameStore, clients),
			many(nameHandmade, clients))
		g.atLeast(fmt.Sprintf("store / etcd, %d clients", clients), 6, many(nameStore, clients), many(nameEtcd, clients))
		g.atLeast(fmt.Sprintf("http / etcd, %d clients", clients), 1.5, many(nameHTTP, clients), many(nameEtcd, clients))
	}
	g.atLeast("http with a key / http, 256 clients", 0.95, many(nameHTTPKey, 256), many(nameHTTP, 256))
	g.atLeast("http with a key and TLS / http, 256 clients", 0.8, many(nameHTTPTLS, 256), many(nameHTTP, 256))
	g.refusals()
	g.atMost("p99 of store / p99 of direct, 64 clients", 1, p99, many(nameStore, 64), many(nameDirect, 64))
	for _, c := range []struct {
		clients int
		limit   float64
	}{{1, 0.95}, {8, 0.95}, {64, 1}, {256, 1}} {
		slow := Case{Measure: Flush, Clients: c.clients, Resources: r.Resources, ValueBytes: r.ValueBytes,
			FlushDelayMS: r.FlushDelayMS}
		g.atLeast(fmt.Sprintf("store / direct, flushes slowed, %d clients", c.clients), c.limit,
			lineKey{slow, nameStore}, lineKey{slow, nameDirect})
	}
	return g.all
}

// goals collects.
type goals struct {
	groups bench.Groups[lineKey, Sample]
	all    []bench.Goal
}

func (g *goals) ratio(value func(Sample) float64, of, to lineKey) bench.Spread {
	return bench.SpreadOf(bench.Ratios(g.groups.Values(of, value), g.groups.Values(to, value)))
}

func (g *goals) atLeast(name string, limit float64, of, to lineKey) {
	g.all = append(g.all, bench.Goal{Name: name, Limit: limit, Figure: g.ratio(perSecond, of, to)})
}

func (g *goals) atMost(name string, limit float64, value func(Sample) float64, of, to lineKey) {
	g.all = append(g.all, bench.Goal{Name: name, Limit: limit, AtMost: true, Figure: g.ratio(value, of, to)})
}

// bulk compares the numbers of clients with which each does best, round by round: bulk needs few connections.
func (g *goals) bulk(name string, limit float64, r Report) {
	best := map[string][]float64{}
	for _, s := range r.Samples {
		if s.Measure != Throughput || s.Resources != r.Resources {
			continue
		}
		for len(best[s.Target]) < s.Round {
			best[s.Target] = append(best[s.Target], 0)
		}
		best[s.Target][s.Round-1] = max(best[s.Target][s.Round-1], s.PerSecond)
	}
	g.all = append(g.all, bench.Goal{Name: name, Limit: limit,
		Figure: bench.SpreadOf(bench.Ratios(best[nameNDJSON], best[nameDirect]))})
}

// refusals are those of zombies and, for each rate at which zombies hammered, of the honest.
func (g *goals) refusals() {
	var refused, alone lineKey
	var beside []lineKey
	for _, k := range g.groups.Keys {
		switch {
		case k.Measure == Dashboards && k.Load != loadAlone:
			g.atLeast(fmt.Sprintf("http, %d clients, %s / without", k.Clients, k.Load), 0.95, k, k.base())
		case k.Measure != Refusals:
		case k.target == nameRefused:
			refused = k
		case k.Load == loadAlone:
			alone = k
		case k.target == nameHTTP:
			beside = append(beside, k)
		}
	}
	g.atLeast("refused / empty handler", 0.7, refused, refused.base())
	for _, k := range beside {
		g.atLeast("honest http, "+k.Load+" / alone", 0.8, k, alone)
	}
}

// WriteGoals writes the goals as measured.
func (r Report) WriteGoals(out io.Writer) error { return bench.WriteGoals(out, r.Goals()) }
