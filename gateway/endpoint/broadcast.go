package endpoint

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/fencegate/fencegate/store"
)

// Broadcast passes events to any number of subscribers. Its producer runs only while there are subscribers: it starts
// with the first and is stopped after the last. A subscriber that does not keep up is ended, so it delays no other.
type Broadcast[E any] struct {
	// Produce publishes events until ctx ends, and returns an error if it can't go on.
	Produce func(ctx context.Context, to *Production[E]) error
	// Until ends when the gateway cuts off its work.
	Until context.Context
	// BehindMax is how many events a subscriber may be behind.
	BehindMax int
	// Replay sends the last event to a new subscriber.
	Replay bool

	mu      sync.Mutex
	current *Production[E] // nil: no subscribers
	running sync.WaitGroup
}

// Production is one run of the producer. Every publish reaches exactly the subscribers of its run.
type Production[E any] struct {
	of   *Broadcast[E]
	stop context.CancelFunc

	subscribers map[*Subscriber[E]]struct{} // guarded by of.mu, like last
	last        *E

	begun    chan struct{} // closed by the first advance
	ended    chan struct{} // closed when the producer has ended
	position atomic.Int64
}

// Subscriber receives the events of one run of the producer.
type Subscriber[E any] struct {
	from   *Production[E]
	events chan E // closed at the end, see reason
	reason error
}

// errCutOff ends the subscribers that are left when the gateway ends.
var errCutOff = store.NotApplied(ErrDraining)

// Ended returns a channel that is closed when the producer that runs now has ended; nil: none runs.
func (b *Broadcast[E]) Ended() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.current == nil {
		return nil
	}
	return b.current.ended
}

// Wait returns when the producer has ended.
func (b *Broadcast[E]) Wait() { b.running.Wait() }

// Subscribe starts the producer if it does not run.
func (b *Broadcast[E]) Subscribe() *Subscriber[E] {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.current
	if p == nil {
		ctx, cancel := context.WithCancel(b.Until) //nolint:gosec // stopLocked calls it
		p = &Production[E]{
			of: b, stop: cancel, subscribers: map[*Subscriber[E]]struct{}{}, begun: make(chan struct{}),
			ended: make(chan struct{}),
		}
		b.current = p
		b.running.Go(func() {
			err := b.Produce(ctx, p)
			if ctx.Err() != nil {
				err = errCutOff
			}
			p.end(err)
		})
	}
	s := &Subscriber[E]{from: p, events: make(chan E, b.BehindMax)}
	if b.Replay && p.last != nil {
		s.events <- *p.last
	}
	p.subscribers[s] = struct{}{}
	return s
}

// Publish passes an event to every subscriber.
func (p *Production[E]) Publish(event E) {
	p.of.mu.Lock()
	defer p.of.mu.Unlock()
	if p.of.Replay {
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

// Advance notes that everything up to the position was published. The first call lets awaitBegin return.
func (p *Production[E]) Advance(position int64) {
	p.position.Store(position)
	select {
	case <-p.begun:
	default:
		close(p.begun)
	}
}

// end ends the run and its subscribers; the next subscriber starts another run.
func (p *Production[E]) end(reason error) {
	p.of.mu.Lock()
	defer p.of.mu.Unlock()
	for s := range p.subscribers {
		s.endLocked(reason)
	}
	p.stopLocked()
	close(p.ended)
}

func (p *Production[E]) stopLocked() {
	p.stop()
	if p.of.current == p {
		p.of.current = nil
	}
}

func (s *Subscriber[E]) endLocked(reason error) {
	delete(s.from.subscribers, s)
	s.reason = reason
	close(s.events)
}

// Leave ends the subscription, and the run if it was the last one.
func (s *Subscriber[E]) Leave() {
	s.from.of.mu.Lock()
	defer s.from.of.mu.Unlock()
	delete(s.from.subscribers, s)
	if len(s.from.subscribers) == 0 {
		s.from.stopLocked()
	}
}

// AwaitBegin waits until the producer has advanced for the first time. It returns store.ErrUnavailable if ctx ends
// before that, or the error of the producer.
func (s *Subscriber[E]) AwaitBegin(ctx context.Context) error {
	select {
	case <-s.from.begun:
		return nil
	case <-s.from.ended:
		return s.reason
	case <-ctx.Done():
		return store.NotApplied(fmt.Errorf("wait for the first events: %w", ctx.Err()))
	}
}

// Next waits for an event. It returns why the subscriber was ended, or why ctx has ended.
func (s *Subscriber[E]) Next(ctx context.Context) (E, error) {
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

// Pending returns an event that waits, or else the position up to which the subscriber has received everything. The
// order matters: an event is published before the position advances past it.
func (s *Subscriber[E]) Pending() (event E, waits bool, position int64, err error) {
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
