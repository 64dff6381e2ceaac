package lockclient

import (
	"context"
	"encoding/json"
	"iter"
	"net/http"
	"strconv"

	"github.com/fencegate/fencegate/gateway/api"
)

// Event is one event of a lock.
type Event struct {
	// ID identifies the event for AfterEvent.
	ID int64
	// Kind is api.EventState, api.EventGranted, … or a kind that only a newer gateway knows.
	Kind string
	// State is the state of the lock if Kind is api.EventState; nil otherwise. State.Missed says that events before it are
	// lost.
	State *api.WatchState
	// Change is the change; nil if Kind is api.EventState.
	Change *api.Event
}

// WatchOption configures a watch.
type WatchOption func(lastID *string)

// AfterEvent begins after the event with this ID, as if the earlier watch had continued.
func AfterEvent(id int64) WatchOption {
	return func(lastID *string) { *lastID = strconv.FormatInt(id, 10) }
}

// Watch reads the events of a lock, or the changes of an election's leader, as they happen. If its connection is cut it
// connects again, to another gateway if need be, and continues after the last event that it returned. It is for one
// reader at a time.
//
// A watch is for people and for caches. Don't base a decision on it that no fence guards: an event may be out of date
// when it arrives.
type Watch[T any] struct {
	stream *eventStream
	// decode makes an item of an event. It returns false for an event to be skipped.
	decode func(serverEvent) (T, bool, error)
}

// Watch begins to watch a lock. The first event is its state. If events were lost, the watch returns an event of the
// kind api.EventState with Missed set. The watch lasts until Close, or until ctx or the client ends. Watch returns
// ErrUnavailable if no gateway could serve, and ErrClosed if the client is closed.
func (c *Client) Watch(ctx context.Context, lock string, opts ...WatchOption) (*Watch[Event], error) {
	var lastID string
	for _, opt := range opts {
		opt(&lastID)
	}
	call := nameCall("watch", http.MethodGet, "/v1/locks/", lock, "/watch")
	stream, err := c.openEvents(ctx, call, lastID)
	if err != nil {
		return nil, err
	}
	return &Watch[Event]{stream, decodeEvent}, nil
}

func decodeEvent(got serverEvent) (event Event, ok bool, err error) {
	event.Kind = got.kind
	if got.id != "" {
		event.ID, err = strconv.ParseInt(got.id, 10, 64)
	}
	if err == nil && got.kind == api.EventState {
		err = json.Unmarshal(got.data, &event.State)
	} else if err == nil {
		err = json.Unmarshal(got.data, &event.Change)
	}
	return event, true, err
}

// Observe begins to observe an election. The first item is the current leader, and each further one another leader, or
// none. After a lost connection the watch may return the same leader again. Its end and its errors are those of
// Client.Watch.
func (c *Client) Observe(ctx context.Context, election string) (*Watch[api.Election], error) {
	stream, err := c.openEvents(ctx, electionCall("observe", http.MethodGet, election, "/observe"), "")
	if err != nil {
		return nil, err
	}
	return &Watch[api.Election]{stream, decodeElection}, nil
}

func decodeElection(got serverEvent) (election api.Election, ok bool, err error) {
	if got.kind != api.EventLeader {
		return election, false, nil
	}
	err = json.Unmarshal(got.data, &election)
	return election, true, err
}

// Next waits for the next event. If its ctx ends first it returns ctx's error, and can be called again. If the watch
// has ended it returns ErrClosed, or the error of the ctx that the watch began with. It returns the gateway's refusal
// if the watch is not allowed any more.
func (w *Watch[T]) Next(ctx context.Context) (T, error) {
	for {
		got, err := w.stream.next(ctx)
		if err != nil {
			return *new(T), err
		}
		item, ok, err := w.decode(got)
		if err != nil {
			return *new(T), w.stream.foreign(err)
		}
		if ok {
			return item, nil
		}
	}
}

// All returns the results of Next until ctx or the watch ends, or the loop is left. An error is its last element.
func (w *Watch[T]) All(ctx context.Context) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for {
			item, err := w.Next(ctx)
			if !yield(item, err) || err != nil {
				return
			}
		}
	}
}

// Close ends the watch, and a Next that waits. It may be called again.
func (w *Watch[T]) Close() { w.stream.close() }
