package locks

import (
	"context"
	"net/http"

	"github.com/fencegate/fencegate/gateway/endpoint"
	"github.com/fencegate/fencegate/lockclient/api"
	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/watch"
)

// watchLock streams the states of a lock.
func (e *Endpoints) watchLock(w *endpoint.Answer, r *http.Request) error {
	lock, err := endpoint.LockName(r)
	if err != nil {
		return err
	}
	if p := endpoint.ReadParameters(r); p.Err != nil {
		return p.Err
	}
	return e.StreamEvents(w, r, func() (endpoint.EventSource, error) {
		states, err := e.service.Watch(e.Work(r), lock)
		return &lockStates{states: states}, err
	})
}

// lockStates sends the states of a watch.
type lockStates struct {
	states *watch.Subscription
	next   store.WatchState // that Wait returned for
}

func (s *lockStates) Begin(*endpoint.EventStream) error { return nil }

func (s *lockStates) Wait(ctx context.Context) (err error) {
	s.next, err = s.states.Next(ctx)
	return err
}

func (s *lockStates) Send(_ context.Context, stream *endpoint.EventStream) error {
	state := api.WatchState{Lock: endpoint.LockAnswer(s.next.Lock), Version: s.next.Version}
	return stream.Send(nil, api.EventState, state)
}

func (s *lockStates) Idle(stream *endpoint.EventStream) error { return stream.Comment() }

func (s *lockStates) Close() { s.states.Close() }
