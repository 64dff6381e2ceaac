package gateway

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/watch"
)

// Why the gateway ends a stream of events.
const (
	endSlowReader  = "slow_reader"
	endShutdown    = "shutdown"
	endUnavailable = "unavailable"
)

// teller makes events for a client of what happens to a lock.
type teller interface {
	begin(*eventStream, *watch.Subscription) error
	tell(context.Context, *eventStream, store.Event) error
}

// watchLock streams everything that happens to a lock.
func (g *Gateway) watchLock(w http.ResponseWriter, r *http.Request) error {
	lock, err := lockName(r)
	if err != nil {
		return err
	}
	after, err := lastEventID(r)
	if err != nil {
		return err
	}
	return g.follow(w, r, lock, after, lockTeller{})
}

// follow streams what teller makes of the events of a lock, until the client has gone or the stream has to end.
func (g *Gateway) follow(w http.ResponseWriter, r *http.Request, lock store.Name, after *int64, teller teller) error {
	release, err := g.openStream()
	if err != nil {
		return err
	}
	defer release()
	watch, err := g.beginWatch(r, lock, after)
	if err != nil {
		return err
	}
	defer watch.Close()
	ctx, cancel := g.attended(r)
	defer cancel()

	stream, err := g.beginEvents(w)
	if err == nil {
		err = teller.begin(stream, watch)
	}
	for err == nil {
		var event store.Event
		if event, err = g.nextEvent(ctx, watch, stream); err == nil {
			err = teller.tell(ctx, stream, event)
		}
	}
	if reason := g.endReason(ctx, err); reason != "" {
		_ = stream.send(nil, api.EventEnd, api.WatchEnd{Reason: reason}) // who does not hear it sees that the stream has ended
	}
	return nil
}

// openStream counts a stream of events, until it is released, or refuses one more than there may be.
func (g *Gateway) openStream() (release func(), err error) {
	if g.watching.Add(1) > int64(g.config.WatchesMax) {
		g.watching.Add(-1)
		return nil, busy("This gateway has as many streams of events open as it may (--watches-max). Try again, or another gateway.")
	}
	g.metrics.watches.Inc()
	return func() {
		g.metrics.watches.Dec()
		g.watching.Add(-1)
	}, nil
}

func (g *Gateway) beginWatch(r *http.Request, lock store.Name, after *int64) (*watch.Subscription, error) {
	ctx, cancel := g.work(r)
	defer cancel()
	return g.backend.Watch(ctx, lock, after)
}

// nextEvent waits for an event, and shows meanwhile that the stream lives: so the gateway hears, too, of a client that is gone.
func (g *Gateway) nextEvent(ctx context.Context, watch *watch.Subscription, stream *eventStream) (store.Event, error) {
	for {
		silent, cancel := context.WithTimeout(ctx, g.config.KeepAlive)
		event, err := watch.Next(silent)
		nothing := errors.Is(err, context.DeadlineExceeded) && silent.Err() != nil && ctx.Err() == nil
		cancel()
		if nothing {
			err = stream.comment()
		}
		if err != nil || !nothing {
			return event, err
		}
	}
}

// endReason is what the client is told of the end of its stream; "" where there is nobody to tell.
func (g *Gateway) endReason(ctx context.Context, err error) string {
	switch {
	case errors.Is(err, errClientGone):
		return ""
	case errors.Is(context.Cause(ctx), errDraining):
		return endShutdown
	case ctx.Err() != nil:
		return ""
	case errors.Is(err, store.ErrSlowReader):
		return endSlowReader
	case errors.Is(err, store.ErrUnavailable):
		return endUnavailable
	}
	g.config.Logger.ErrorContext(ctx, "a stream of events failed", "error", err)
	return endUnavailable
}

// lockTeller tells every event.
type lockTeller struct{}

func (lockTeller) begin(stream *eventStream, watch *watch.Subscription) error {
	if watch.Resumed {
		return nil
	}
	return stream.send(&watch.ID, api.EventState, api.WatchState{Lock: lockAnswer(watch.Lock), Missed: watch.Missed})
}

func (lockTeller) tell(_ context.Context, stream *eventStream, event store.Event) error {
	return stream.send(&event.ID, string(event.Kind), eventAnswer(event))
}

func eventAnswer(event store.Event) api.Event {
	return api.Event{
		Lock: string(event.Lock), At: api.Time{Time: event.At}, OwnerID: event.OwnerID, FencingToken: event.Token,
		Mode: string(event.Mode), Scope: string(event.Scope), ExpiresAt: timeAnswer(event.ExpiresAt),
		Reason: event.Reason, Code: api.Code(event.Verdict), Key: string(event.Key),
	}
}

// timeAnswer is nil for a time that is not there.
func timeAnswer(instant time.Time) *api.Time {
	if instant.IsZero() {
		return nil
	}
	return &api.Time{Time: instant}
}
