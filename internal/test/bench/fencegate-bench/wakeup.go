//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/fencegate/fencegate/internal/test/bench/rig"
	"github.com/fencegate/fencegate/internal/test/testenv/gateway"
	"github.com/fencegate/fencegate/lockclient"
)

const (
	// calm is how long a waiter waits, at least, before the lock is released to it. What the service still does for a wait
	// that has just begun is not the wake-up: etcd sends a new watcher nothing until a loop of its own, every 100 ms, has
	// come to it.
	calm = 150 * time.Millisecond
	// pairsMax are made ready together, so that not every hand-off costs the calm.
	pairsMax = 32
	// breath is before every release: what the hand-off before has left to do is over.
	breath = 2 * time.Millisecond

	lookInterval = time.Millisecond
)

// wakeUps measures in turn, in the services with a queue, the time from just before a release is sent until the acquire
// of the waiter has returned.
func wakeUps(ctx context.Context, r *rig.Rig, services []service, count int) error {
	services = slices.DeleteFunc(slices.Clone(services), func(s service) bool { return !s.queues })
	for _, s := range services { // warms up
		if _, err := s.handOffs(ctx, r.Prefix+"/wake-up", max(1, count/10)); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	return r.InTurn(len(services), func(round, i int) error {
		latencies, err := services[i].handOffs(ctx, r.Prefix+"/wake-up", count)
		if err != nil {
			return fmt.Errorf("%s: %w", services[i].name, err)
		}
		slices.Sort(latencies)
		r.Note("wake-up", fmt.Sprint(count, " hand-offs"), services[i].name, "etcd", round,
			rig.Value{Name: rig.P50, Of: rig.Percentile(latencies, 0.5)},
			rig.Value{Name: rig.P99, Of: rig.Percentile(latencies, 0.99), Ratio: true})
		return nil
	})
}

// handOffs measures so many hand-offs, one after the other: pairs of clients are made ready together.
func (s service) handOffs(ctx context.Context, prefix string, count int) (latencies []time.Duration, err error) {
	together := min(count, pairsMax)
	lockers, closeAll, err := s.connectAll(ctx, 2*together+1)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, closeAll()) }()
	// Whatever fails ends the waits, before the clients are closed; and a wait that fails ends all.
	ctx, fail := context.WithCancelCause(ctx)
	var waiting sync.WaitGroup
	defer func() {
		if cause := context.Cause(ctx); err != nil && cause != nil {
			err = cause
		}
		fail(nil)
		waiting.Wait()
	}()
	for len(latencies) < count {
		pairs := make([]pair, min(together, count-len(latencies)))
		for i := range pairs {
			lock, waiter := fmt.Sprintf("%s/%d", prefix, i), lockers[2*i+1]
			pairs[i].granted = make(chan grant, 1)
			if pairs[i].held, err = lockers[2*i].hold(ctx, lock); err != nil {
				return nil, err
			}
			waiting.Go(func() {
				lease, err := waiter.hold(ctx, lock)
				got := grant{lease, time.Now()}
				if err != nil {
					fail(fmt.Errorf("a waiter: %w", err))
				}
				pairs[i].granted <- got
			})
			if err := awaitQueue(ctx, lockers[2*together], lock, 1, lookInterval); err != nil {
				return nil, err
			}
		}
		pause(ctx, calm)
		for _, p := range pairs {
			pause(ctx, breath)
			before := time.Now()
			if err := p.held.release(ctx); err != nil {
				return nil, err
			}
			got := <-p.granted
			latencies = append(latencies, got.at.Sub(before))
			if err := errors.Join(ctx.Err(), got.lease.release(ctx)); err != nil {
				return nil, err
			}
		}
	}
	return latencies, nil
}

// pair is a client that holds a lock, and one that waits for it.
type pair struct {
	held    held
	granted chan grant
}

// grant is what a waiter got, and when.
type grant struct {
	lease held
	at    time.Time
}

// awaitQueue polls until so many wait.
func awaitQueue(ctx context.Context, onlooker locker, lock string, length int, interval time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, waitMax)
	defer cancel()
	for {
		waiting, err := onlooker.waiting(ctx, lock)
		if err != nil {
			return fmt.Errorf("look at the queue: %w", err)
		}
		if waiting >= length {
			return nil
		}
		if !pause(ctx, interval) {
			return fmt.Errorf("%d wait, not %d: %w", waiting, length, ctx.Err())
		}
	}
}

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
