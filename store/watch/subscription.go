package watch

import (
	"context"

	"github.com/fencegate/fencegate/store"
)

const (
	// bufferMax is how many events of a subscription may be unread before it is ended.
	bufferMax = 256
	// resumeMax is how many events a subscription may be behind and still be resumed.
	resumeMax = 1000
)

// Subscription is a stream of the events of one lock. One goroutine uses it.
type Subscription struct {
	// Resumed says that the events follow the one that the subscriber saw last. Otherwise they follow the state in Lock.
	Resumed bool
	// Missed says that events after the one that the subscriber saw last are lost.
	Missed bool
	// Lock is the lock after the event with the ID; zero where Resumed. One that was never granted is free, with token 0.
	Lock store.Lock
	ID   int64

	broadcast *Broadcast
	name      store.Name
	backlog   []store.Event     // to be read before events
	events    chan *store.Event // shared with others; closed when the subscription has ended, see reason
	reason    error
}

// Subscribe begins a subscription to the events of a lock. after is the ID of the last event that the subscriber saw;
// nil: none. It returns ErrUnavailable.
func (b *Broadcast) Subscribe(ctx context.Context, lock store.Name, after *int64) (*Subscription, error) {
	s := &Subscription{broadcast: b, name: lock, events: make(chan *store.Event, bufferMax)}
	if err := b.db.KeepEvents(ctx, []store.Name{lock}, keptFor); err != nil {
		return nil, err
	}
	b.add(s)
	if err := s.catchUp(ctx, after); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// catchUp reads the backlog after the event that the subscriber saw last, or the state of the lock.
func (s *Subscription) catchUp(ctx context.Context, after *int64) error {
	b := s.broadcast
	state, err := b.db.WatchState(ctx, s.name)
	if err != nil {
		return err
	}
	followed := b.follow(s.name, state)
	if after != nil && *after >= state.Since && *after <= state.Newest {
		s.ID = *after
		s.backlog, err = b.db.Events(ctx, []store.Name{s.name}, []int64{s.ID}, resumeMax+1)
		s.Resumed = len(s.backlog) <= resumeMax
	}
	if !s.Resumed {
		s.Missed, s.Lock, s.ID, s.backlog = after != nil, state.Lock, state.Newest, nil
		if followed > state.Newest && err == nil {
			s.backlog, err = b.db.Events(ctx, []store.Name{s.name}, []int64{state.Newest}, fetchMax)
		}
	}
	return err
}

// Next waits for the next event. It returns ErrSlowReader when more than 256 events were not read in time, and
// ErrUnavailable when events were lost while the database was unreachable. In both cases the subscription has ended,
// and another one can begin after the last ID. It returns the cause of ctx when that ends.
func (s *Subscription) Next(ctx context.Context) (store.Event, error) {
	if len(s.backlog) > 0 {
		event := s.backlog[0]
		s.backlog = s.backlog[1:]
		s.ID = event.ID
		return event, nil
	}
	for {
		select {
		case event, ok := <-s.events:
			if !ok {
				return store.Event{}, s.reason
			}
			if event.ID > s.ID {
				s.ID = event.ID
				return *event, nil
			}
		case <-ctx.Done():
			return store.Event{}, context.Cause(ctx)
		}
	}
}

// Close ends the subscription.
func (s *Subscription) Close() {
	s.broadcast.mu.Lock()
	defer s.broadcast.mu.Unlock()
	s.broadcast.end(s, store.ErrSlowReader)
}
