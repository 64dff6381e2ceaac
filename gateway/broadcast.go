package gateway

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/fencegate/fencegate/store"
)

// broadcast passes events to any number of subscribers. Its producer runs only while there are subscribers: it starts
// with the first and is stopped after the last. A subscriber that does not keep up is ended, so it delays no other.
type broadcast[E any] struct {
	// produce publishes events until ctx ends, and returns an error if it can't go on.
	produce func(ctx context.Context, to *production[E]) error
	// until ends when the gateway cuts off its work.
	until context.Context
	// behindMax is how many events a subscriber may be behind.
	behindMax int
	// replay sends the last event to a new subscriber.
	replay bool

	mu      sync.Mutex
	current *production[E] // nil: no subscribers
	running sync.WaitGroup
}

// production is one run of the producer. Every publish reaches exactly the subscribers of its run.
type production[E any] struct {
	of   *broadcast[E]
	stop context.CancelFunc

	subscribers map[*subscriber[E]]struct{} // guarded by of.mu, like last
	last        *E

	begun    chan struct{} // closed by the first advance
	ended    chan struct{} // closed when the producer has ended
	position atomic.Int64
}

// subscriber receives the events of one run of the producer.
type subscriber[E any] struct {
	from   *production[E]
	events chan E // closed at the end, see reason
	reason error
}

// errCutOff ends the subscribers that are left when the gateway ends.
var errCutOff = store.NotApplied(errDraining)

// subscribe starts the producer if it does not run.
func (b *broadcast[E]) subscribe() *subscriber[E] {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.current
	if p == nil {
		ctx, cancel := context.WithCancel(b.until) //nolint:gosec // stopLocked calls it
		p = &production[E]{
			of: b, stop: cancel, subscribers: map[*subscriber[E]]struct{}{}, begun: make(chan struct{}),
			ended: make(chan struct{}),
		}
		b.current = p
		b.running.Go(func() {
			err := b.produce(ctx, p)
			if ctx.Err() != nil {
				err = errCutOff
			}
			p.end(err)
		})
	}
	s := &subscriber[E]{from: p, events: make(chan E, b.behindMax)}
	if b.replay && p.last != nil {
		s.events <- *p.last
	}
	p.subscribers[s] = struct{}{}
	return s
}

// publish passes an event to every subscriber.
func (p *production[E]) publish(event E) {
	p.of.mu.Lock()
	defer p.of.mu.Unlock()
	if p.of.replay {
		p.last = &event
	}
	for s := range p.subscribers {
		select {
		case s.events <- event:
		default:
			s.endLocked(store.ErrSlowReader)
		}
	}
}

// advance notes that everything up to the position was published. The first call lets awaitBegin return.
func (p *production[E]) advance(position int64) {
	p.position.Store(position)
	select {
	case <-p.begun:
	default:
		close(p.begun)
	}
}

// end ends the run and its subscribers; the next subscriber starts another run.
func (p *production[E]) end(reason error) {
	p.of.mu.Lock()
	defer p.of.mu.Unlock()
	for s := range p.subscribers {
		s.endLocked(reason)
	}
	p.stopLocked()
	close(p.ended)
}

func (p *production[E]) stopLocked() {
	p.stop()
	if p.of.current == p {
		p.of.current = nil
	}
}

func (s *subscriber[E]) endLocked(reason error) {
	delete(s.from.subscribers, s)
	s.reason = reason
	close(s.events)
}

// leave ends the subscription, and the run if it was the last one.
func (s *subscriber[E]) leave() {
	s.from.of.mu.Lock()
	defer s.from.of.mu.Unlock()
	delete(s.from.subscribers, s)
	if len(s.from.subscribers) == 0 {
		s.from.stopLocked()
	}
}

// awaitBegin waits until the producer has advanced for the first time. It returns store.ErrUnavailable if ctx ends
// before that, or the error of the producer.
func (s *subscriber[E]) awaitBegin(ctx context.Context) error {
	select {
	case <-s.from.begun:
		return nil
	case <-s.from.ended:
		return s.reason
	case <-ctx.Done():
		return store.NotApplied(fmt.Errorf("wait for the first events: %w", ctx.Err()))
	}
}

// next waits for an event. It returns why the subscriber was ended, or why ctx has ended.
func (s *subscriber[E]) next(ctx context.Context) (E, error) {
	select {
	case event, ok := <-s.events:
		if !ok {
			return event, s.reason
		}
		return event, nil
	case <-ctx.Done():
		var none E
		return none, context.Cause(ctx)
	}
}

// pending returns an event that waits, or else the position up to which the subscriber has received everything. The
// order matters: an event is published before the position advances past it.
func (s *subscriber[E]) pending() (event E, waits bool, position int64, err error) {
	position = s.from.position.Load()
	select {
	case event, waits = <-s.events:
		if !waits {
			err = s.reason
		}
	default:
	}
	return event, waits, position, err
}
