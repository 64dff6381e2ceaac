package watch

import (
	"context"

	"github.com/fencegate/fencegate/store"
)

const (
	// watchBuffer is how many events of a watch may be unread before it is ended.
	watchBuffer = 256
	// resumeMax is how many events a watch may lie behind and still be resumed.
	resumeMax = 1000
)

// Subscription is a stream of the events of one lock. It is used by one goroutine.
type Subscription struct {
	// Resumed says that the events follow those that were seen before. Otherwise the watch begins with the lock as it stands.
	Resumed bool
	// Missed says that events after those that were seen before are lost.
	Missed bool
	// Lock is how the lock stands after the event with the ID; zero where Resumed. One that was never granted is free, with token 0.
	Lock store.Lock
	ID   int64

	watches *Broadcast
	name    store.Name
	behind  []store.Event    // to be read before those that come
	coming  chan store.Event // closed when the watch was ended, see reason
	reason  error
}

// Watch begins a watch of a lock; after is the ID of the last event that was seen of it, nil: none. It returns ErrUnavailable.
func (b *Broadcast) Watch(ctx context.Context, lock store.Name, after *int64) (*Subscription, error) {
	w := &Subscription{watches: b, name: lock, coming: make(chan store.Event, watchBuffer)}
	if err := b.begin(ctx, []store.Name{lock}); err != nil {
		return nil, err
	}
	b.add(w)
	state, err := b.store.WatchState(ctx, lock)
	if err != nil {
		w.Close()
		return nil, err
	}
	followed := b.follow(lock, state.Newest)
	if after != nil && *after >= state.Since && *after <= state.Newest {
		w.ID = *after
		w.behind, err = b.store.Events(ctx, []store.Name{lock}, []int64{w.ID}, resumeMax+1)
		w.Resumed = len(w.behind) <= resumeMax
	}
	if !w.Resumed {
		w.Missed, w.Lock, w.ID, w.behind = after != nil, state.Lock, state.Newest, nil
		if followed > state.Newest && err == nil {
			w.behind, err = b.store.Events(ctx, []store.Name{lock}, []int64{state.Newest}, fetchMax)
		}
	}
	if err != nil {
		w.Close()
		return nil, err
	}
	return w, nil
}

// Next waits for the next event. It returns ErrSlowReader when more than 256 events were not read in time, and ErrUnavailable when events were
// lost while the database was away: in both cases the watch has ended, and another one can be begun after the last ID. It returns
// the cause of ctx when that ends.
func (w *Subscription) Next(ctx context.Context) (store.Event, error) {
	for len(w.behind) > 0 {
		event := w.behind[0]
		w.behind = w.behind[1:]
		w.ID = event.ID
		return event, nil
	}
	for {
		select {
		case event, ok := <-w.coming:
			if !ok {
				return store.Event{}, w.reason
			}
			if event.ID > w.ID {
				w.ID = event.ID
				return event, nil
			}
		case <-ctx.Done():
			return store.Event{}, context.Cause(ctx)
		}
	}
}

// Close ends the watch.
func (w *Subscription) Close() { w.watches.remove(w, store.ErrSlowReader) }
