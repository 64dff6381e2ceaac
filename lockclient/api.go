package lockclient

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/fencegate/fencegate/gateway/api"
)

// API is the HTTP API of locks, records, sessions and elections, one method per path: it sends requests as they are, and
// retries only at the next gateway. Programs use the methods of [Client] and [Lease]; API is for tools. The package
// admin has the lists, policies, keys and the audit log. API is safe for concurrent use.
//
// With several gateways (WithFailover) a call continues at the next one, each gateway once and within ctx, if that
// can't apply it twice: if it can't have been sent, if the answer says that it was not applied, or if its outcome is
// unknown and it may be sent again. The latter are reads, renewals and keepalives, releases, resignations and session
// ends, numbered writes, and acquires and campaigns with a RequestID. An error matches [ErrOutcomeUnknown] if one of
// the attempts may have been applied.
type API struct {
	client *Client
	// limit, if positive, replaces the client's answer timeout, for the last gateway, too.
	limit time.Duration
}

// limited returns the same calls with a limit for each attempt, beyond the time that it asks to wait for a lock.
func (a *API) limited(limit time.Duration) *API { return &API{client: a.client, limit: limit} }

// send asks the gateways in turn, until one answers; call.check has read the answer then. It returns *Error for every
// refusal and every network failure, or *AnswerError.
func (a *API) send(ctx context.Context, call request) error {
	if call.err != nil {
		return call.err
	}
	gateways := a.client.gateways
	first := a.client.preferred.Load()
	var doubt error
	for i := range gateways {
		index := (int(first) + i) % len(gateways)
		last := i == len(gateways)-1
		err := a.attempt(ctx, call, gateways[index], last)
		if err == nil || !notServed(err) {
			a.client.prefer(first, index)
			return remember(err, doubt)
		}
		if errors.Is(err, ErrOutcomeUnknown) {
			doubt = remember(err, doubt)
		}
		if last || ctx.Err() != nil || (errors.Is(err, ErrOutcomeUnknown) && !call.idempotent && call.repeat != "") {
			// A call that the caller canceled says nothing against the gateway.
			if !errors.Is(ctx.Err(), context.Canceled) {
				a.client.prefer(first, (index+1)%len(gateways))
			}
			return remember(err, doubt)
		}
	}
	panic("lockclient: a client without a gateway")
}

// prefer makes another gateway the preferred one, unless that has changed since.
func (c *Client) prefer(before int64, index int) {
	if before != int64(index) {
		c.preferred.CompareAndSwap(before, int64(index))
	}
}

// notServed says that another gateway may answer differently.
func notServed(err error) bool {
	return errors.Is(err, ErrUnavailable) || errors.Is(err, ErrForeignAnswer)
}

// attempt sends a call to one gateway.
func (a *API) attempt(ctx context.Context, call request, at gateway, last bool) error {
	if err := ctx.Err(); err != nil {
		return endedWith(ctx, at.noAnswer(call, api.OutcomeNotApplied, err), nil)
	}
	limited := ctx
	// There is no limit but the caller's where the caller has a deadline and no other gateway is left.
	if _, hasDeadline := ctx.Deadline(); a.limit > 0 || !hasDeadline || !last {
		var cancel context.CancelFunc
		limited, cancel = context.WithTimeout(ctx, cmp.Or(a.limit, a.client.answerTimeout)+call.wait)
		defer cancel()
	}
	return endedWith(ctx, a.client.exchange(limited, call, at), nil)
}
