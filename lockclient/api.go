package lockclient

import (
	"context"
	"errors"
	"time"

	"github.com/fencegate/fencegate/gateway/api"
)

// API is the HTTP API, one method a path: requests as they are, and no retries but the failover. The methods of
// [Client] and [Lease] are what programs want; this is for tools, and for what they leave out. It is safe for
// concurrent use.
//
// With several gateways (WithFailover) a call goes on to the next one, each gateway once and within ctx, as long as
// that can't do it twice: if it can't have been sent, if it was answered as not applied, or if its outcome is unknown
// and it may be sent again. That is a read, a renewal or keepalive, a release, resignation or end, a numbered write,
// an acquire or campaign with a RequestID. An error is [ErrOutcomeUnknown] if one of the attempts may have been
// applied.
type API struct {
	client *Client
	// limit, if positive, is in place of the client's answer timeout, and holds for the last gateway, too.
	limit time.Duration
}

// limited gives the same calls with a limit for each attempt, beyond the time that it asks to wait for a lock.
func (a *API) limited(limit time.Duration) *API { return &API{client: a.client, limit: limit} }

// send asks the gateways in turn, until one answers; call.check has read the answer then. It returns *Error for every
// refusal and every failure of the network, or *AnswerError.
func (a *API) send(ctx context.Context, call request) error {
	gateways := a.client.gateways
	first := a.client.preferred.Load()
	var doubt error
	for i := range gateways {
		place := (int(first) + i) % len(gateways)
		last := i == len(gateways)-1
		err := a.attempt(ctx, call, gateways[place], last)
		if err == nil || !notServed(err) {
			a.client.prefer(first, place)
			return remember(err, doubt)
		}
		if errors.Is(err, ErrOutcomeUnknown) {
			doubt = remember(err, doubt)
		}
		if last || ctx.Err() != nil || (errors.Is(err, ErrOutcomeUnknown) && !call.idempotent && call.repeat != "") {
			// A caller who loses interest says nothing against the gateway.
			if !errors.Is(ctx.Err(), context.Canceled) {
				a.client.prefer(first, (place+1)%len(gateways))
			}
			return remember(err, doubt)
		}
	}
	panic("lockclient: a client without a gateway")
}

// prefer moves on to another gateway, unless somebody else has since.
func (c *Client) prefer(before int64, place int) {
	if before != int64(place) {
		c.preferred.CompareAndSwap(before, int64(place))
	}
}

// unserved says that a gateway gave no answer that another would give, too.
func notServed(err error) bool {
	return errors.Is(err, ErrUnavailable) || errors.Is(err, ErrForeignAnswer)
}

// attempt sends a call to one gateway.
func (a *API) attempt(ctx context.Context, call request, at gateway, last bool) error {
	if err := ctx.Err(); err != nil {
		return endedWith(ctx, at.noAnswer(call, api.OutcomeNotApplied, err), nil)
	}
	limited := ctx
	if limit, ok := a.attemptLimit(ctx, last); ok {
		var cancel context.CancelFunc
		limited, cancel = context.WithTimeout(ctx, limit+call.wait)
		defer cancel()
	}
	_, err := a.client.exchange(limited, call, at)
	return endedWith(ctx, err, nil)
}

// attemptLimit leaves the caller's deadline alone where there is nobody else to ask.
func (a *API) attemptLimit(ctx context.Context, last bool) (time.Duration, bool) {
	if a.limit > 0 {
		return a.limit, true
	}
	_, limited := ctx.Deadline()
	return a.client.answerTimeout, !limited || !last
}
