package gateway

import (
	"bytes"
	"context"
	"net/http"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/store"
)

// observe streams the leaders of an election. There is nothing to resume: a stream begins with the current leader.
func (g *Gateway) observe(w http.ResponseWriter, r *http.Request) error {
	election, err := electionName(r)
	if err != nil {
		return err
	}
	if _, err := lastEventID(r); err != nil {
		return err
	}
	return g.streamEvents(w, r, func() (eventSource, error) {
		events, err := g.watch(r, election, nil)
		return &leaderEvents{lockEvents: events, g: g}, err
	})
}

// leaderEvents sends the leader at first, and then whenever it changes. Events have no leader's value, so it reads the
// lock again: the leader that it sends is never older than the event, and may skip one that has gone meanwhile.
type leaderEvents struct {
	*lockEvents

	g    *Gateway
	sent api.Election
}

func (e *leaderEvents) begin(stream *eventStream) error {
	e.sent = electionAnswer(e.watch.Lock)
	return stream.send(&e.watch.ID, api.EventLeader, e.sent)
}

func (e *leaderEvents) send(ctx context.Context, stream *eventStream) error {
	switch e.event.Kind {
	case store.EventGranted, store.EventReleased, store.EventExpired, store.EventBroken:
	case store.EventRenewed, store.EventQueued, store.EventRejected:
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), e.g.config.RequestTimeout)
	defer cancel()
	lock, err := e.g.backend.Lock(ctx, e.event.Lock)
	if err != nil {
		return err
	}
	now := electionAnswer(lock)
	if now.Leader == e.sent.Leader && now.Term == e.sent.Term && bytes.Equal(now.Value, e.sent.Value) {
		return nil
	}
	e.sent = now
	return stream.send(&e.event.ID, api.EventLeader, now)
}
