//go:build unix

package locks

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
)

// crowdQueue is the crowd before one lock.
type crowdQueue struct {
	lock   string
	holder queue
	groups []group
	// cancel ends the round, with the error of the first waiter that failed.
	cancel  context.CancelCauseFunc
	running sync.WaitGroup
	served  atomic.Int64
}

// group is waiters that share a client of one gateway.
type group struct {
	*gatewayLocker

	gateway int
	waiters int
}

// connectGroups makes the clients, of the gateways in turn, and lets each make a connection.
func (c Config) connectGroups(ctx context.Context, running gateways) ([]group, error) {
	groups := make([]group, groupsOf(c.Waiters, len(running)))
	for i := range groups {
		gateway := i % len(running)
		l, err := newGatewayLocker(running[gateway].URL, fmt.Sprintf("bench-%d", i), c.Protocol)
		if err != nil {
			return nil, err
		}
		if err := l.api.Ready(ctx); err != nil {
			return nil, err
		}
		groups[i] = group{l, gateway, (i+1)*c.Waiters/len(groups) - i*c.Waiters/len(groups)}
	}
	return groups, nil
}

// groupsOf is how many groups there must be, the same number at each gateway.
func groupsOf(waiters, gateways int) int {
	perRound := groupMax * gateways
	return (waiters + perRound - 1) / perRound * gateways
}

// enqueue starts one group after the other. It returns once all are in the queue, with the number of their connections.
func (c Config) enqueue(ctx context.Context, crowd *crowdQueue) (connections int, err error) {
	queued := 0
	for i, g := range crowd.groups {
		crowd.join(ctx, g)
		queued += g.waiters
		if err := awaitQueue(ctx, crowd.holder, crowd.lock, queued, pollInterval); err != nil {
			return 0, err
		}
		if c.Protocol == HTTP2 {
			connections++
		} else {
			connections += g.waiters
		}
		if (i+1)%10 == 0 {
			c.progress("crowd: %d of %d wait", queued, c.Waiters)
		}
	}
	return connections, nil
}

// join lets a group's waiters wait for the lock, each of which releases it as soon as it has it.
func (l *crowdQueue) join(ctx context.Context, g group) {
	for i := range g.waiters {
		l.running.Go(func() {
			release, err := g.acquireAs(ctx, l.lock, fmt.Sprintf("%s-%d", g.owner, i))
			if err == nil {
				err = release(ctx)
			}
			if err != nil && !errors.Is(err, context.Canceled) {
				l.cancel(fmt.Errorf("a waiter: %w", err))
			}
			l.served.Add(1)
		})
	}
}

// perGateway is how many waiters each gateway has.
func (l *crowdQueue) perGateway() []int {
	waiters := make([]int, crowdGateways)
	for _, g := range l.groups {
		waiters[g.gateway] += g.waiters
	}
	return waiters
}
