//go:build unix

package faults

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/lockclient"
)

const (
	// leaseTTLMS is short enough for leases of the absent to run out while a load lasts.
	leaseTTLMS = 200

	// answerPatience is how long a client waits for one answer before it turns to another gateway: a frozen one gives none.
	answerPatience = 500 * time.Millisecond

	// Pauses, so that clients that can't go on leave the processor to those that can.
	retryPause = 25 * time.Millisecond
	heldPause  = 20 * time.Millisecond
)

// client takes locks, writes, and lets go of them, as well as the faults let it.
type client struct {
	name    string
	locks   []string
	fleet   *fleet
	journal *journal
	random  *rand.Rand
	place   int // of the gateway that it uses
	asked   int
}

// run works until stop is closed and then brings to an end what was begun; ctx bounds that.
func (c *client) run(ctx context.Context, stop <-chan struct{}) {
	for ctx.Err() == nil {
		select {
		case <-stop:
			return
		default:
		}
		lease, granted := c.acquire(ctx, c.locks[c.random.IntN(len(c.locks))])
		if granted {
			c.work(ctx, lease)
		}
	}
}

// work writes under a lease, renews it sometimes, and releases it or leaves it to its expiry.
func (c *client) work(ctx context.Context, lease api.Lease) {
	for sequence := range 1 + c.random.Int64N(8) {
		if c.random.IntN(20) == 0 {
			c.pause(ctx, leaseTTLMS*time.Millisecond) // the holder is late, and does not know
		}
		if !c.write(ctx, lease, sequence+1) {
			return
		}
		if c.random.IntN(4) == 0 {
			c.renew(ctx, lease)
		}
	}
	if c.random.IntN(4) > 0 {
		c.release(ctx, lease)
	}
}

// acquire asks for a lock until it is told whether it has it.
func (c *client) acquire(ctx context.Context, lock string) (api.Lease, bool) {
	c.asked++
	c.place = c.random.IntN(len(c.fleet.members))
	request := api.AcquireRequest{
		OwnerID: c.name, TTLMS: new(int64(leaseTTLMS)), RequestID: new(fmt.Sprintf("%s-%d", c.name, c.asked)),
	}
	first := c.journal.now()
	for ctx.Err() == nil {
		lease, err := send(ctx, c, func(ctx context.Context, g *gateway) (api.Lease, error) { return g.Acquire(ctx, lock, request) })
		switch {
		case err == nil:
			c.journal.granted(grant{
				lock: lock, owner: c.name, leaseID: lease.LeaseID, token: lease.FencingToken, sent: first, answered: c.journal.now(),
			})
			return lease, true
		case errors.Is(err, lockclient.ErrLockHeld):
			c.pause(ctx, heldPause)
			return lease, false
		case errors.Is(err, lockclient.ErrLeaseLost):
			return lease, false // it had been granted, and ended before the answer came
		case !c.unavailable(ctx, err):
			return lease, false
		}
	}
	c.journal.surprise(fmt.Sprintf("%s: nobody answered its acquire of %s", c.name, lock))
	return api.Lease{}, false
}

// write sends one numbered write until it is told what became of it, and returns whether the client may go on writing. Where it
// is told that nothing was changed, it leaves it at that now and then.
func (c *client) write(ctx context.Context, lease api.Lease, sequence int64) bool {
	w := c.compose(lease, sequence)
	unknown := false
	for ctx.Err() == nil {
		w.attempts++
		w.sent = c.journal.now()
		result, err := send(ctx, c, func(ctx context.Context, g *gateway) (api.WriteResult, error) { return put(ctx, g, w) })
		var problem *api.Problem
		switch {
		case err == nil:
			w.fate, w.version, w.replayed = acknowledged, result.Version, result.Replayed
			c.journal.wrote(w)
			return true
		case errors.Is(err, lockclient.ErrTokenStale):
			if errors.As(err, &problem) && problem.Reason == "reused" {
				// It writes in order and awaits each answer: only its own retry can be older than the last write, and that is a replay.
				c.journal.surprise(fmt.Sprintf("%s: after %d attempts: %v", c.name, w.attempts, err))
			}
			c.end(w, unknown)
			return false
		case !c.unavailable(ctx, err):
			c.end(w, true)
			return false
		}
		if errors.As(err, &problem) && problem.Outcome == api.OutcomeUnknown {
			unknown = true
		}
		if !unknown && c.random.IntN(4) == 0 {
			c.end(w, false)
			return true
		}
	}
	c.end(w, true)
	c.journal.surprise(fmt.Sprintf("%s: nobody told what became of its write %s", c.name, w.key))
	return false
}

// compose is a put of one record, or a transaction that puts three.
func (c *client) compose(lease api.Lease, sequence int64) write {
	kind := byPut
	if c.random.IntN(2) == 0 {
		kind = byTransaction
	}
	number := fmt.Sprintf("%d.%d", lease.FencingToken, sequence)
	return write{
		resource: lease.Lock, key: ownPrefix + number, token: lease.FencingToken, sequence: sequence,
		value: kind + number + " by " + c.name + `"`, fate: doubtful,
	}
}

// end notes a write that was not acknowledged.
func (c *client) end(w write, unknown bool) {
	w.fate = notApplied
	if unknown {
		w.fate = doubtful
	}
	c.journal.wrote(w)
}

func (c *client) renew(ctx context.Context, lease api.Lease) {
	request := api.RenewRequest{OwnerID: c.name, LeaseID: lease.LeaseID, FencingToken: lease.FencingToken}
	_, err := send(ctx, c, func(ctx context.Context, g *gateway) (api.Lease, error) { return g.Renew(ctx, lease.Lock, request) })
	if err != nil && !errors.Is(err, lockclient.ErrLeaseLost) {
		c.unavailable(ctx, err)
	}
}

// release tries until it is told that the lease has ended, however.
func (c *client) release(ctx context.Context, lease api.Lease) {
	request := api.ReleaseRequest{OwnerID: c.name, LeaseID: lease.LeaseID, FencingToken: lease.FencingToken}
	for ctx.Err() == nil {
		_, err := send(ctx, c, func(ctx context.Context, g *gateway) (struct{}, error) {
			return struct{}{}, g.Release(ctx, lease.Lock, request)
		})
		if err == nil || errors.Is(err, lockclient.ErrLeaseLost) || !c.unavailable(ctx, err) {
			return
		}
	}
}

// unavailable tells whether a call failed as it may under faults; then the client turns to the next gateway. Anything else is noted:
// whatever is broken, a gateway answers with the truth or not at all.
func (c *client) unavailable(ctx context.Context, err error) bool {
	var problem *api.Problem
	if !errors.Is(err, lockclient.ErrUnavailable) {
		c.journal.surprise(fmt.Sprintf("%s: %v", c.name, err))
		return false
	}
	if errors.As(err, &problem) && problem.Outcome == "" {
		c.journal.surprise(fmt.Sprintf("%s: unavailable without an outcome: %v", c.name, err))
	}
	c.journal.unavailable()
	c.place++
	c.pause(ctx, retryPause)
	return true
}

func (c *client) pause(ctx context.Context, length time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(length):
	}
}

// send makes one call of the gateway that the client uses.
func send[T any](ctx context.Context, c *client, call func(context.Context, *gateway) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, answerPatience)
	defer cancel()
	return call(ctx, c.fleet.at(c.place))
}

// put sends a write by the source that its value names.
func put(ctx context.Context, g *gateway, w write) (api.WriteResult, error) {
	token := api.FencingToken{Token: w.token, Sequence: &w.sequence}
	if !strings.HasPrefix(w.value, byTransaction) {
		return g.Put(ctx, w.resource, w.key, lockclient.Write{Token: token, ContentType: "application/json", Value: []byte(w.value)})
	}
	value := json.RawMessage(w.value)
	result, err := g.Transaction(ctx, api.TransactionRequest{
		Fences: []api.WriteToken{{Resource: w.resource, FencingToken: &w.token, Sequence: &w.sequence}},
		Ops: []api.Op{
			{Op: "put", Resource: w.resource, Key: w.key, Value: value},
			{Op: "put", Resource: w.resource, Key: otherKey(w.key), Value: value},
			{Op: "put", Resource: w.resource, Key: lastKey, Value: value},
		},
	})
	if err != nil {
		return api.WriteResult{}, err
	}
	return api.WriteResult{Version: result.Results[0].Version, Replayed: result.Replayed}, nil
}
