package gateway

import (
	"context"
	"net/http"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/watch"
)

// watchLock streams the events of a lock.
func (g *Gateway) watchLock(w *answerWriter, r *http.Request) error {
	lock, err := lockName(r)
	if err != nil {
		return err
	}
	after, p := lastEventID(r)
	if p.err != nil {
		return p.err
	}
	return g.streamEvents(w, r, func() (eventSource, error) { return g.watch(r, lock, after) })
}

// watch begins to watch a lock, after an event if that is given.
func (g *Gateway) watch(r *http.Request, lock store.Name, after *int64) (*lockEvents, error) {
	watch, err := g.backend.Watch(g.work(r), lock, after)
	return &lockEvents{watch: watch}, err
}

// lockEvents sends every event of a watch.
type lockEvents struct {
	watch *watch.Subscription
	event store.Event // that wait returned for
}

func (e *lockEvents) begin(stream *eventStream) error {
	if e.watch.Resumed {
		return nil
	}
	state := api.WatchState{Lock: lockAnswer(e.watch.Lock), Missed: e.watch.Missed}
	return stream.send(&e.watch.ID, api.EventState, state)
}

func (e *lockEvents) wait(ctx context.Context) (err error) {
	e.event, err = e.watch.Next(ctx)
	return err
}

func (e *lockEvents) send(_ context.Context, stream *eventStream) error {
	return stream.send(&e.event.ID, string(e.event.Kind), eventAnswer(e.event))
}

func (e *lockEvents) idle(stream *eventStream) error { return stream.comment() }

func (e *lockEvents) close() { e.watch.Close() }

func eventAnswer(event store.Event) api.Event {
	return api.Event{
		Lock: string(event.Lock), At: api.Time{Time: event.At}, OwnerID: event.OwnerID, FencingToken: event.Token,
		Mode: string(event.Mode), Scope: string(event.Scope), ExpiresAt: optionalTime(event.ExpiresAt),
		Reason: event.Reason, Code: api.Code(event.Verdict), Key: string(event.Key),
	}
}
