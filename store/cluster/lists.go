package cluster

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/engine"
	"github.com/fencegate/fencegate/store/groupcommit"
)

// each calls all nodes at once. A node that does not answer fails the call: a list without its names would be wrong.
func (c *Cluster) each(call func(*engine.Engine) error) error {
	return onEach(c.Nodes(), func(_ string, on *engine.Engine) error { return call(on) })
}

// onEach calls nodes at once, and returns their errors.
func onEach(nodes map[string]*engine.Engine, call func(name string, on *engine.Engine) error) error {
	var calls sync.WaitGroup
	failed := make(chan error, len(nodes))
	for name, on := range nodes {
		calls.Go(func() { failed <- call(name, on) })
	}
	calls.Wait()
	close(failed)
	var all []error
	for err := range failed {
		all = append(all, err)
	}
	return errors.Join(all...)
}

// merge returns the first items of all nodes, in an order that each of them keeps.
func merge[T any](
	c *Cluster, limit int, order func(a, b T) int, read func(*engine.Engine) ([]T, error),
) (all []T, err error) {
	var mu sync.Mutex
	err = c.each(func(on *engine.Engine) error {
		items, err := read(on)
		mu.Lock()
		defer mu.Unlock()
		all = append(all, items...)
		return err
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(all, order)
	return all[:min(limit, len(all))], nil
}

// Locks returns locks of all nodes.
func (c *Cluster) Locks(ctx context.Context, query store.LockQuery) ([]store.Lock, error) {
	byKey := func(a, b store.Lock) int {
		order := cmp.Compare(a.SortKey, b.SortKey)
		if query.Sort == "" || query.Sort == store.LocksByName {
			order = cmp.Compare(a.Lock, b.Lock)
		}
		if query.Descending {
			order = -order
		}
		return cmp.Or(order, cmp.Compare(a.Lock, b.Lock))
	}
	return merge(c, query.Limit, byKey, func(on *engine.Engine) ([]store.Lock, error) { return on.Locks(ctx, query) })
}

// CountLocks returns how many locks of all nodes there are.
func (c *Cluster) CountLocks(ctx context.Context, query store.LockQuery) (count int64, err error) {
	counts, err := merge(c, len(c.Nodes()), cmp.Compare[int64], func(on *engine.Engine) ([]int64, error) {
		count, err := on.CountLocks(ctx, query)
		return []int64{count}, err
	})
	for _, one := range counts {
		count += one
	}
	return count, err
}

// Leases returns leases of all nodes.
func (c *Cluster) Leases(ctx context.Context, query store.LeaseQuery) ([]store.LeaseInfo, error) {
	byToken := func(a, b store.LeaseInfo) int {
		return cmp.Or(cmp.Compare(a.Token, b.Token), cmp.Compare(a.Lock, b.Lock))
	}
	return merge(c, query.Limit, byToken, func(on *engine.Engine) ([]store.LeaseInfo, error) { return on.Leases(ctx, query) })
}

// WaitsOf returns for whom an owner waits, at all nodes.
func (c *Cluster) WaitsOf(ctx context.Context, ownerID string, limit int, within []string) (store.WaitGraph, error) {
	var graph store.WaitGraph
	graphs, err := merge(c, len(c.Nodes()), func(store.WaitGraph, store.WaitGraph) int { return 0 },
		func(on *engine.Engine) ([]store.WaitGraph, error) {
			one, err := on.WaitsOf(ctx, ownerID, limit, within)
			return []store.WaitGraph{one}, err
		})
	for _, one := range graphs {
		graph.Waits = append(graph.Waits, one.Waits...)
		graph.Truncated = graph.Truncated || one.Truncated
	}
	if len(graph.Waits) > limit {
		graph.Waits, graph.Truncated = graph.Waits[:limit], true
	}
	return graph, err
}

// PutPolicy sets a policy at the coordinator and at all nodes. After an error it may be set at some: send it again.
func (c *Cluster) PutPolicy(ctx context.Context, policy store.Policy) error {
	if policy.Leases != "" && policy.Leases != store.ProviderPostgres {
		return errors.Join(store.ErrUnsupported, errors.New("the nodes of a cluster keep leases in PostgreSQL"))
	}
	if err := c.each(func(on *engine.Engine) error { return on.PutPolicy(ctx, policy) }); err != nil {
		return err
	}
	return c.engine.PutPolicy(ctx, policy)
}

// DeletePolicy deletes a policy at all nodes and at the coordinator. After an error it may be left at some: send it
// again.
func (c *Cluster) DeletePolicy(ctx context.Context, prefix string) error {
	err := c.each(func(on *engine.Engine) error {
		if err := on.DeletePolicy(ctx, prefix); !errors.Is(err, store.ErrNotFound) {
			return err
		}
		return nil
	})
	if err != nil {
		return err
	}
	return c.engine.DeletePolicy(ctx, prefix)
}

// Recount counts what each node has.
func (c *Cluster) Recount(ctx context.Context) (counted bool, err error) {
	counted, err = c.engine.Recount(ctx)
	return counted, errors.Join(err, c.each(func(on *engine.Engine) error {
		_, err := on.Recount(ctx)
		return err
	}))
}

// Waiting returns how many acquires wait in this process.
func (c *Cluster) Waiting() (waiting int) {
	for _, on := range c.Nodes() {
		waiting += on.Waiting()
	}
	return waiting
}

// GroupStats are those of all nodes.
func (c *Cluster) GroupStats() (all groupcommit.Stats) {
	for _, on := range c.Nodes() {
		stats := on.GroupStats()
		all.Queued += stats.Queued
		all.QueuedBytes += stats.QueuedBytes
	}
	return all
}
