package cluster

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/fencegate/fencegate/store"
)

// nodeOverviewTimeout bounds the reading of a node's state. It is shorter than the time between two overviews, which a
// node that hangs must not delay.
const nodeOverviewTimeout = time.Second

// Overview returns the state of the coordinator and of all nodes, or ErrUnavailable where the coordinator does not
// answer. What a node holds that does not answer is not counted.
func (c *Cluster) Overview(ctx context.Context) (store.Overview, error) {
	overview, err := c.engine.Overview(ctx)
	if err != nil {
		return store.Overview{}, err
	}
	overview.Nodes = c.nodeStates(ctx)
	ofCoordinator := overview.Inventory
	for _, on := range overview.Nodes {
		if on.Name == store.CoordinatorNode {
			overview.Inventory = store.Inventory{
				At: ofCoordinator.At, NewestToken: ofCoordinator.NewestToken, TablesEnforce: ofCoordinator.TablesEnforce,
				TablesObserve: ofCoordinator.TablesObserve, TablesWithProblems: ofCoordinator.TablesWithProblems,
			}
			overview.Database.BySQL = store.SQLTotals{SweptAt: overview.Database.BySQL.SweptAt}
		}
	}
	for _, on := range overview.Nodes {
		if on.Failed == nil {
			addInventory(&overview.Inventory, on.Inventory)
			addTotals(&overview.Database.BySQL, on.Database.BySQL)
		}
	}
	return overview, nil
}

// nodeStates reads the state of each node.
func (c *Cluster) nodeStates(ctx context.Context) (states []store.NodeState) {
	ctx, cancel := context.WithTimeout(ctx, nodeOverviewTimeout)
	defer cancel()
	c.mu.Lock()
	nodes := make(map[string]*node, len(c.nodes))
	for name, on := range c.nodes {
		nodes[name] = on
	}
	c.mu.Unlock()
	var reading sync.WaitGroup
	var mu sync.Mutex
	for name, on := range nodes {
		reading.Go(func() {
			read, err := on.engine.Overview(ctx)
			mu.Lock()
			defer mu.Unlock()
			states = append(states, store.NodeState{
				Name: name, Address: on.address, Failed: err, Inventory: read.Inventory, Database: read.Database,
			})
		})
	}
	reading.Wait()
	slices.SortFunc(states, func(a, b store.NodeState) int {
		return cmp.Or(cmp.Compare(a.Address, b.Address), cmp.Compare(a.Name, b.Name))
	})
	return states
}

// addInventory adds what a node holds. Protected tables are known to the coordinator alone.
func addInventory(all *store.Inventory, more store.Inventory) {
	if all.At.IsZero() || !more.At.IsZero() && more.At.Before(all.At) {
		all.At = more.At
	}
	all.Locks += more.Locks
	all.Held += more.Held
	all.Expiring += more.Expiring
	all.Expired += more.Expired
	all.Waiting += more.Waiting
	all.Sessions += more.Sessions
	all.Overdue = max(all.Overdue, more.Overdue)
	all.OldestWait = max(all.OldestWait, more.OldestWait)
	all.Stuck = max(all.Stuck, more.Stuck)
	all.NewestToken = max(all.NewestToken, more.NewestToken)
	leases := map[string]int64{}
	for _, of := range []map[string]int64{all.LeasesOf, more.LeasesOf} {
		for principal, held := range of {
			leases[principal] += held
		}
	}
	all.LeasesOf = leases
}

// addTotals adds what clients of a node did by SQL.
func addTotals(all *store.SQLTotals, more store.SQLTotals) {
	rejected := map[store.RejectionClass]int64{}
	for _, of := range []map[store.RejectionClass]int64{all.Rejected, more.Rejected} {
		for class, rejections := range of {
			rejected[class] += rejections
		}
	}
	all.Rejected = rejected
	all.Unlisted += more.Unlisted
	switch {
	case all.Guards == nil:
		all.Guards = more.Guards
	case more.Guards != nil:
		guards := *all.Guards + *more.Guards
		all.Guards = &guards
	}
}

// PoolStats are those of the connections to all databases.
func (c *Cluster) PoolStats() store.PoolStats {
	all := c.engine.PoolStats()
	for _, on := range c.Nodes() {
		stats := on.PoolStats()
		all.Max += stats.Max
		all.Busy += stats.Busy
		all.Idle += stats.Idle
		all.Waited += stats.Waited
	}
	return all
}

// Listening reports whether all nodes can notify this process of its waiters.
func (c *Cluster) Listening() bool {
	for _, on := range c.Nodes() {
		if !on.Listening() {
			return false
		}
	}
	return c.engine.Listening()
}
