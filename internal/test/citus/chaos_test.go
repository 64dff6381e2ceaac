package citus_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencegate/fencegate/internal/test/journal"
	"github.com/fencegate/fencegate/internal/test/testenv/await"
	testgateway "github.com/fencegate/fencegate/internal/test/testenv/gateway"
	"github.com/fencegate/fencegate/internal/test/testenv/postgres"
	"github.com/fencegate/fencegate/lockclient"
	"github.com/fencegate/fencegate/store"
)

var (
	chaosFor  = flag.Duration("citus.duration", 20*time.Second, "how long TestChaos breaks what it can")
	chaosSeed = flag.Uint64("citus.seed", 0, "has TestChaos break the same in the same order; 0: a random one")
)

// chaos is a cluster with gateways under load.
type chaos struct {
	*cluster
	calls *journal.Journal

	mu       sync.Mutex
	gateways []*testgateway.Gateway
}

// TestChaos kills and freezes workers, the coordinator and gateways, and moves shards, at random and one after the other,
// while clients work. Their calls must be those of the contract, and what each node has must fit to them.
func TestChaos(t *testing.T) {
	seed := *chaosSeed
	for seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("-citus.seed=%d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	c := &chaos{cluster: newCluster(t), calls: journal.New()}
	for range 2 {
		c.gateways = append(c.gateways, c.start(t))
	}
	var names []string
	for i := range 12 {
		names = append(names, fmt.Sprintf("%d/load", i))
	}
	work := c.calls.Exercise(16, names, await.Limit)
	work.Gateway = func(random *rand.Rand) *lockclient.API {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.gateways[random.IntN(len(c.gateways))].API
	}
	ctx, stop := context.WithCancel(t.Context())
	var working sync.WaitGroup
	working.Go(func() { work.Run(ctx, seed) })
	progress(t, c.calls, 100)
	faults := c.faults(t)
	for end := time.Now().Add(*chaosFor); time.Now().Before(end); {
		fault := faults[random.IntN(len(faults))]
		t.Log(fault.name)
		fault.happens(random)
		progress(t, c.calls, 100)
	}
	stop()
	working.Wait()
	t.Log(c.calls.Summary())
	if _, sound := c.calls.Progress(); !sound {
		t.Error("answers that no fault explains")
	}
	c.judge(t)
}

func (c *chaos) start(t *testing.T) *testgateway.Gateway {
	t.Helper()
	return testgateway.StartBroken(t, c.program, "--cluster", "--database-url", c.coordinator.URL(), "--statement-timeout", "2s")
}

// fault is something that breaks, and is healed again.
type fault struct {
	name    string
	happens func(*rand.Rand)
}

func (c *chaos) faults(t *testing.T) []fault {
	servers := []*postgres.Cluster{c.workers[0], c.workers[1], c.coordinator}
	meanwhile := func(random *rand.Rand) { time.Sleep(time.Duration(random.IntN(3000)) * time.Millisecond) }
	killed := func(random *rand.Rand) {
		server := servers[random.IntN(len(servers))]
		c.calls.Crashed()
		server.Kill()
		meanwhile(random)
		server.Restart()
	}
	return []fault{
		{"a server is killed", killed},
		{"the coordinator is away, and the nodes go on", func(*rand.Rand) {
			c.calls.Crashed()
			c.coordinator.Kill()
			progress(t, c.calls, 100)
			c.coordinator.Restart()
		}},
		{"a server is frozen", func(random *rand.Rand) {
			thaw := servers[random.IntN(len(servers))].Freeze()
			meanwhile(random)
			thaw()
		}},
		{"a shard moves", func(*rand.Rand) { c.move(t) }},
		{"a shard moves, and a server is killed", func(random *rand.Rand) {
			c.move(t)
			time.Sleep(time.Duration(random.IntN(1000)) * time.Millisecond) // gateways move its names
			killed(random)
		}},
		{"a gateway is killed", func(random *rand.Rand) {
			i := random.IntN(len(c.gateways))
			c.gateways[i].Kill()
			started := c.start(t)
			c.mu.Lock()
			defer c.mu.Unlock()
			c.gateways[i] = started
		}},
		{"a gateway is frozen", func(random *rand.Rand) {
			frozen := c.gateways[random.IntN(len(c.gateways))]
			frozen.Freeze(t)
			meanwhile(random)
			frozen.Thaw(t)
		}},
	}
}

// judge waits until all names are where they belong, and compares the calls with what each node has.
func (c *chaos) judge(t *testing.T) {
	t.Helper()
	await.True(t, "each name has one node", func() bool {
		_, err := c.try(t, "check")
		return err == nil
	})
	coordinator := connect(t, c.coordinator)
	at := map[store.Name]int{}
	for i := range c.workers {
		db, err := pgxpool.New(t.Context(), c.workers[i].URL())
		check(t, err)
		t.Cleanup(db.Close)
		of := c.calls.Of(func(name store.Name) bool {
			if _, known := at[name]; !known {
				at[name] = c.nodeOf(t, coordinator, name)
			}
			return at[name] == i
		})
		found, err := of.Check(await.Context(t), db, "")
		check(t, err)
		for _, violation := range found {
			t.Error(violation)
		}
		t.Logf("worker %d has the names of %d calls", i, len(of.Calls()))
	}
}
