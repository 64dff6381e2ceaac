package locks

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// pair is two clients that hand one lock to each other: one holds it, the other waits.
type pair struct {
	lock           string
	holder, waiter locker
	onlooker       queue
	waiting        *sync.WaitGroup
	fail           context.CancelCauseFunc

	release func(context.Context) error // the holder's
	granted chan grant                  // to the waiter
	ready   time.Time                   // when the waiter has waited for long enough
}

// grant is what a waiter got, and when.
type grant struct {
	release func(context.Context) error
	at      time.Time
	err     error
}

// begin lets one acquire the lock, and the other wait for it.
func (p *pair) begin(ctx context.Context) (err error) {
	if p.release, err = p.holder.acquire(ctx, p.lock); err != nil {
		return err
	}
	return p.enqueue(ctx)
}

// enqueue lets the waiter wait for the lock, and returns once it is in the queue.
func (p *pair) enqueue(ctx context.Context) error {
	p.granted = make(chan grant, 1)
	p.waiting.Go(func() {
		release, err := p.waiter.acquire(ctx, p.lock)
		p.granted <- grant{release, time.Now(), err}
		if err != nil {
			p.fail(fmt.Errorf("a waiter: %w", err))
		}
	})
	err := awaitQueue(ctx, p.onlooker, p.lock, 1, lookInterval)
	p.ready = time.Now().Add(calm)
	return err
}

// handOff releases the lock to the waiter and returns how long that took. Then the two have changed roles.
func (p *pair) handOff(ctx context.Context) (time.Duration, error) {
	if err := sleep(ctx, max(time.Until(p.ready), pause)); err != nil {
		return 0, err
	}
	before := time.Now()
	got, err := p.releaseToWaiter(ctx)
	if err != nil {
		return 0, err
	}
	p.release = got.release
	p.holder, p.waiter = p.waiter, p.holder
	return got.at.Sub(before), p.enqueue(ctx)
}

// releaseToWaiter lets the holder release the lock, and returns what the waiter got.
func (p *pair) releaseToWaiter(ctx context.Context) (grant, error) {
	if err := p.release(ctx); err != nil {
		return grant{}, err
	}
	got := <-p.granted
	return got, got.err
}

// end lets the holder release the lock, and then the waiter.
func (p *pair) end(ctx context.Context) error {
	got, err := p.releaseToWaiter(ctx)
	if err != nil {
		return err
	}
	return got.release(ctx)
}
