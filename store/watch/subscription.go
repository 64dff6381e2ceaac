package watch

import (
	"context"

	"github.com/fencegate/fencegate/store"
)

// Subscription is a stream of the states of one lock. One goroutine uses it.
type Subscription struct {
	broadcast *Broadcast
	name      store.Name
	states    chan store.WatchState // of capacity 1; closed when the subscription has ended, see reason
	reason    error

	reading bool // a reading has begun since Subscribe
	begun   bool // it was handed a state
}

// Subscribe begins a subscription to the states of a lock. It returns ErrUnavailable.
func (b *Broadcast) Subscribe(ctx context.Context, lock store.Name) (*Subscription, error) {
	s := &Subscription{broadcast: b, name: lock, states: make(chan store.WatchState, 1)}
	b.add(s)
	if err := b.keep(ctx, []store.Name{lock}); err != nil {
		s.Close()
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fetch(lock)
	return s, nil
}

// Next returns the state of the lock, and then waits for another one. It returns ErrUnavailable when the lock could not
// be read for a minute; then the subscription has ended. It returns the cause of ctx when that ends.
func (s *Subscription) Next(ctx context.Context) (store.WatchState, error) {
	select {
	case state, ok := <-s.states:
		if !ok {
			return state, s.reason
		}
		return state, nil
	case <-ctx.Done():
		return store.WatchState{}, context.Cause(ctx)
	}
}

// Close ends the subscription.
func (s *Subscription) Close() {
	s.broadcast.mu.Lock()
	defer s.broadcast.mu.Unlock()
	s.broadcast.end(s, context.Canceled)
}
