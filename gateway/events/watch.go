package events

import (
	"context"
	"net/http"

	"github.com/fencegate/fencegate/gateway/endpoint"
	"github.com/fencegate/fencegate/lockclient/api"
	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/watch"
)

// watchLock streams the events of a lock.
func (e *Endpoints) watchLock(w *endpoint.Answer, r *http.Request) error {
	lock, err := endpoint.LockName(r)
	if err != nil {
		return err
	}
	after, p := endpoint.LastEventID(r)
	if p.Err != nil {
		return p.Err
	}
	return e.StreamEvents(w, r, func() (endpoint.EventSource, error) { return e.watch(r, lock, after) })
}

// watch begins to watch a lock, after an event if that is given.
func (e *Endpoints) watch(r *http.Request, lock store.Name, after *int64) (*lockEvents, error) {
	watch, err := e.service.Watch(e.Work(r), lock, after)
	return &lockEvents{watch: watch}, err
}

// lockEvents sends every event of a watch.
type lockEvents struct {
	watch *watch.Subscription
	event store.Event // that wait returned for
}

func (e *lockEvents) Begin(stream *endpoint.EventStream) error {
	if e.watch.Resumed {
		return nil
	}
	state := api.WatchState{Lock: endpoint.LockAnswer(e.watch.Lock), Missed: e.watch.Missed}
	return stream.Send(&e.watch.ID, api.EventState, state)
}

func (e *lockEvents) Wait(ctx context.Context) (err error) {
	e.event, err = e.watch.Next(ctx)
	return err
}

func (e *lockEvents) Send(_ context.Context, stream *endpoint.EventStream) error {
	return stream.Send(&e.event.ID, string(e.event.Kind), eventAnswer(e.event))
}

func (e *lockEvents) Idle(stream *endpoint.EventStream) error { return stream.Comment() }

func (e *lockEvents) Close() { e.watch.Close() }

func eventAnswer(event store.Event) api.Event {
	return api.Event{
		Lock: string(event.Lock), At: api.Time{Time: event.At}, OwnerID: event.OwnerID, FencingToken: event.Token,
		Mode: string(event.Mode), Scope: string(event.Scope), ExpiresAt: endpoint.OptionalTime(event.ExpiresAt),
		Reason: event.Reason, Code: api.Code(event.Verdict), Key: string(event.Key),
	}
}
