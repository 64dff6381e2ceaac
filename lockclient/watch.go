package lockclient

import (
	"context"
	"encoding/json"
	"iter"
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
type WatchOption func(*watchConfig)

type watchConfig struct{ after string }

// AfterEvent begins after the event with this ID, as if the earlier watch had continued.
func AfterEvent(id int64) WatchOption {
	return func(c *watchConfig) { c.after = strconv.FormatInt(id, 10) }
}

// Watch reads the events of one lock as they happen. If its connection is cut it connects again, to another gateway if
// need be, and continues after the last event that it returned. If events were lost, it returns an event of the kind
// api.EventState with Missed set. It is for one reader at a time.
//
// A watch is for people and for caches. Don't base a decision on it that no fence guards: an event may be out of date
// when it arrives.
type Watch struct{ stream *eventStream }

// Watch begins to watch a lock. The first event is its state. The watch lasts until Close, or until ctx or the client
// ends. Watch returns ErrUnavailable if no gateway could serve, and ErrClosed if the client is closed.
func (c *Client) Watch(ctx context.Context, lock string, opts ...WatchOption) (*Watch, error) {
	config := watchConfig{}
	for _, opt := range opts {
		opt(&config)
	}
	op := "watch " + lock
	path, err := namePath(op, lock)
	if err != nil {
		return nil, err
	}
	stream, err := c.openStream(ctx, op, "/v1/locks/"+path+"/watch", config.after)
	if err != nil {
		return nil, err
	}
	return &Watch{stream: stream}, nil
}

// Next waits for the next event. If its ctx ends first it returns ctx's error, and can be called again. If the watch
// has ended it returns ErrClosed, or the error of the ctx that Watch was called with. It returns the gateway's
// refusal if the watch is not allowed any more.
func (w *Watch) Next(ctx context.Context) (Event, error) {
	got, err := w.stream.next(ctx)
	if err != nil {
		return Event{}, err
	}
	event := Event{Kind: got.kind}
	if got.id != "" {
		event.ID, err = strconv.ParseInt(got.id, 10, 64)
	}
	if err == nil && got.kind == api.EventState {
		err = json.Unmarshal(got.data, &event.State)
	} else if err == nil {
		err = json.Unmarshal(got.data, &event.Change)
	}
	if err != nil {
		return Event{}, w.stream.foreign(err)
	}
	return event, nil
}

// All returns the events until ctx or the watch ends, or the loop is left. An error is its last element.
func (w *Watch) All(ctx context.Context) iter.Seq2[Event, error] { return all(ctx, w.Next) }

// Close ends the watch, and a Next that waits. It may be called again.
func (w *Watch) Close() { w.stream.close() }

// ElectionWatch reads the changes of an election's leader. It connects again as a Watch does. It is for one reader at a
// time.
type ElectionWatch struct{ stream *eventStream }

// Observe begins to observe an election. The first element is the current leader. The watch lasts until Close, or
// until ctx or the client ends. Observe returns ErrUnavailable if no gateway could serve, and ErrClosed if the client
// is closed.
func (c *Client) Observe(ctx context.Context, election string) (*ElectionWatch, error) {
	op := "observe " + election
	path, err := electionPath(op, election)
	if err != nil {
		return nil, err
	}
	stream, err := c.openStream(ctx, op, "/v1/elections/"+path+"/observe", "")
	if err != nil {
		return nil, err
	}
	return &ElectionWatch{stream: stream}, nil
}

// Next waits for a change: another leader, or none. After a lost connection it may return the same again. Its errors
// are those of Watch.Next.
func (w *ElectionWatch) Next(ctx context.Context) (api.Election, error) {
	for {
		got, err := w.stream.next(ctx)
		if err != nil {
			return api.Election{}, err
		}
		if got.kind != api.EventLeader {
			continue
		}
		var election api.Election
		if err := json.Unmarshal(got.data, &election); err != nil {
			return api.Election{}, w.stream.foreign(err)
		}
		return election, nil
	}
}

// All returns the results of Next until ctx or the watch ends, or the loop is left. An error is its last element.
func (w *ElectionWatch) All(ctx context.Context) iter.Seq2[api.Election, error] {
	return all(ctx, w.Next)
}

// Close ends the watch, and a Next that waits. It may be called again.
func (w *ElectionWatch) Close() { w.stream.close() }

func all[T any](ctx context.Context, next func(context.Context) (T, error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for {
			item, err := next(ctx)
			if !yield(item, err) || err != nil {
				return
			}
		}
	}
}

// Rejections returns the rejected writes that query selects, page after page from query.Cursor on; query.Limit is the
// size of a page. An error is its last element.
func (c *Client) Rejections(ctx context.Context, query RejectionsQuery) iter.Seq2[api.Rejection, error] {
	return func(yield func(api.Rejection, error) bool) {
		for {
			page, err := c.API().Rejections(ctx, query)
			if err != nil {
				yield(api.Rejection{}, err)
				return
			}
			for _, rejection := range page.Rejections {
				if !yield(rejection, nil) {
					return
				}
			}
			if query.Cursor = page.NextCursor; query.Cursor == "" {
				return
			}
		}
	}
}
