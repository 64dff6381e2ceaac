//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/fencegate/fencegate/internal/test/bench/rig"
	"github.com/fencegate/fencegate/internal/test/testenv/gateway"
	"github.com/fencegate/fencegate/lockclient"
)

const (
	crowdGateways = 2
	// groupMax is how many waiters share an HTTP/2 connection: a gateway takes 100 requests at once on one.
	groupMax = 80

	crowdValue      = "value"
	grantsPerSecond = "grants/s while it drains"
)

func (c *locksCmd) crowdTable() string {
	return fmt.Sprintf("crowd: %d wait for one lock at two gateways, by HTTP/2", c.Waiters)
}

// group is waiters that share a connection to one gateway.
type group struct {
	gateway *lockclient.API
	name    string
	waiters int
}

// crowd measures thousands of waiters for one lock, half of them at each of two gateways that did nothing before: their
// cost while nothing happens, and how fast the queue moves.
func (c *locksCmd) crowd(ctx context.Context, r *rig.Rig, round int) (err error) {
	lock := fmt.Sprintf("%s/crowd/%d", r.Prefix, round)
	note := func(figure string, value float64) {
		r.Note(c.crowdTable(), figure, "fencegate", "", round, rig.Value{Name: crowdValue, Of: value})
	}
	var gateways []*gateway.Process
	defer func() {
		for _, gateway := range gateways {
			err = errors.Join(err, gateway.Stop())
		}
	}()
	var pids []int
	for range crowdGateways {
		gateway, err := r.Gateway(ctx)
		if err != nil {
			return err
		}
		gateways, pids = append(gateways, gateway), append(pids, gateway.PID())
	}
	groups, err := c.crowdGroups(ctx, gateways)
	if err != nil {
		return err
	}
	holder, err := gatewayClient{gateways[0].URL, "bench-holder", leaseTTL, false}.locker()
	if err != nil {
		return err
	}
	lease, err := holder.hold(ctx, lock)
	if err != nil {
		return err
	}
	before, err := c.observe(ctx, r, "nobody waits", pids, note)
	if err != nil {
		return err
	}

	// A failure from here on ends the waiters before the gateways: a gateway that ends waits for its waiters.
	ctx, cancel := context.WithCancelCause(ctx)
	var running sync.WaitGroup
	defer func() {
		if cause := context.Cause(ctx); err != nil && cause != nil {
			err = cause
		}
		cancel(nil)
		running.Wait()
	}()
	begun := time.Now()
	if err := queueUp(ctx, groups, lock, holder, &running, cancel); err != nil {
		return err
	}
	note("seconds until all wait", time.Since(begun).Seconds())
	all, err := c.observe(ctx, r, "all wait", pids, note)
	if err != nil {
		return err
	}
	note("gateways' memory per waiter, KiB", (all-before)/1024/float64(c.Waiters))
	begun = time.Now()
	if err := lease.release(ctx); err != nil {
		return err
	}
	running.Wait()
	took := time.Since(begun).Seconds()
	if err := context.Cause(ctx); err != nil {
		return err
	}
	note("seconds to drain", took)
	note(grantsPerSecond, float64(c.Waiters)/took)
	return nil
}

// queueUp lets one group after the other wait for the lock, each waiter of which releases it as soon as it has it. It
// returns when all are in the queue.
func queueUp(ctx context.Context, groups []group, lock string, onlooker locker, running *sync.WaitGroup,
	cancel context.CancelCauseFunc,
) error {
	queued := 0
	for _, g := range groups {
		for i := range g.waiters {
			running.Go(func() {
				waiter := gatewayClient{owner: fmt.Sprintf("%s-%d", g.name, i), ttl: lockTTL}
				lease, err := waiter.hold(ctx, g.gateway, lock)
				if err == nil {
					err = lease.release(ctx)
				}
				if err != nil && !errors.Is(err, context.Canceled) {
					cancel(fmt.Errorf("a waiter: %w", err))
				}
			})
		}
		queued += g.waiters
		if err := awaitQueue(ctx, onlooker, lock, queued, 20*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

// crowdGroups makes the clients, of the gateways in turn, and lets each make a connection.
func (c *locksCmd) crowdGroups(ctx context.Context, gateways []*gateway.Process) (groups []group, err error) {
	count := (c.Waiters + groupMax*crowdGateways - 1) / (groupMax * crowdGateways) * crowdGateways
	for i := range count {
		client, _, err := gatewayClient{url: gateways[i%crowdGateways].URL, http2: true}.dial()
		if err == nil {
			err = client.Ready(ctx)
		}
		if err != nil {
			return nil, err
		}
		groups = append(groups, group{client, fmt.Sprintf("bench-%d", i), (i+1)*c.Waiters/count - i*c.Waiters/count})
	}
	return groups, nil
}

// observe notes the load while nothing happens, and returns the memory of all gateways.
func (c *locksCmd) observe(
	ctx context.Context, r *rig.Rig, when string, pids []int, note func(string, float64),
) (memory float64, err error) {
	postgres, gateways, err := r.Idle(ctx, c.Idle, pids)
	if err != nil {
		return 0, err
	}
	note("PostgreSQL's CPU, "+when+", %", postgres*100)
	note("both gateways' CPU, "+when+", %", gateways*100)
	for _, pid := range pids {
		stat, err := rig.ProcessStat(pid)
		if err != nil {
			return 0, err
		}
		memory += float64(stat.ResidentMemory())
	}
	note("both gateways' memory, "+when+", MiB", memory/(1<<20))
	return memory, nil
}
