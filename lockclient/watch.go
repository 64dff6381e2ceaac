package lockclient

import (
	"context"
	"encoding/json"
	"iter"
	"strconv"

	"github.com/fencegate/fencegate/gateway/api"
)

// Event is what happened to a lock.
type Event struct {
	// ID is the event's, for AfterEvent.
	ID int64
	// Kind is one of the names api.EventState, api.EventGranted, …; those that the future adds arrive, too.
	Kind string
	// State is how the lock stands, where Kind is api.EventState; nil otherwise. State.Missed says that events before it
	// are lost.
	State *api.WatchState
	// Change is what happened; nil where Kind is api.EventState.
	Change *api.Event
}

// WatchOption changes how a watch begins.
type WatchOption func(*watchConfig)

type watchConfig struct{ after string }

// AfterEvent begins after the event of this ID, as if the watch that saw it had gone on.
func AfterEvent(id int64) WatchOption {
	return func(c *watchConfig) { c.after = strconv.FormatInt(id, 10) }
}

// Watch is what happens to one lock, as it happens. It connects again where it is cut off, to another gateway if need
// be, and goes on after the last event that it has seen. What could not be told again shows as an event of the kind
// api.EventState with Missed. It is for one reader at a time.
//
// A watch is for people and for caches. Decide nothing on it that a fence does not guard: what it tells is over when
// it arrives.
type Watch struct{ stream *eventStream }

// Watch begins to watch a lock. Its first event is the state of it. It lasts until Close, the end of ctx, or that of
// the client. It returns ErrUnavailable if no gateway could serve, and ErrClosed.
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

// Next waits for the next event. It returns ctx's error if ctx ends before, and can be called again then; ErrClosed,
// or the error of the ctx that Watch was called with, if the watch has ended; the gateway's refusal if it is not
// allowed any more.
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

// All gives the events until ctx ends, the watch ends, or the loop is left. An error is the last that it gives.
func (w *Watch) All(ctx context.Context) iter.Seq2[Event, error] { return all(ctx, w.Next) }

// Close ends the watch, and a Next that waits. It may be called often.
func (w *Watch) Close() { w.stream.close() }

// ElectionWatch is who leads, as it changes. It connects again where it is cut off, as a Watch does. It is for one
// reader at a time.
type ElectionWatch struct{ stream *eventStream }

// Observe begins to observe an election. The first that it tells is who leads now. It lasts until Close, the end of
// ctx, or that of the client. It returns ErrUnavailable if no gateway could serve, and ErrClosed.
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

// Next waits until there is something new to tell of the election: another leader, or none. After a lost connection
// it may tell the same again. Its errors are those of Watch.Next.
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

// All gives what Next gives, until ctx ends, the watch ends, or the loop is left. An error is the last that it gives.
func (w *ElectionWatch) All(ctx context.Context) iter.Seq2[api.Election, error] {
	return all(ctx, w.Next)
}

// Close ends the watch, and a Next that waits. It may be called often.
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

// Rejections gives the writes that were shut out, as which says, page after page from which.Cursor on; which.Limit is
// the size of a page. An error is the last that it gives.
func (c *Client) Rejections(ctx context.Context, which RejectionsQuery) iter.Seq2[api.Rejection, error] {
	return func(yield func(api.Rejection, error) bool) {
		for {
			page, err := c.API().Rejections(ctx, which)
			if err != nil {
				yield(api.Rejection{}, err)
				return
			}
			for _, rejection := range page.Rejections {
				if !yield(rejection, nil) {
					return
				}
			}
			if which.Cursor = page.NextCursor; which.Cursor == "" {
				return
			}
		}
	}
}
