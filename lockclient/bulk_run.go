package lockclient

import (
	"context"
	"errors"
	"time"
)

// run keeps a stream while there is something to send, until the pipeline ends.
func (p *Pipeline) run() {
	policy := insistence.withDefaults()
	var failed int
	var failing time.Time
	for p.awaitWork() {
		settled, err := p.stream()
		if settled > 0 || err == nil {
			failed = 0
		}
		if err == nil {
			continue
		}
		if failed++; failed == 1 {
			failing = time.Now()
		}
		pause := policy.pause(failed, hintOf(err), jitter())
		hopeless := !unanswered(err) || failed >= policy.Attempts || time.Since(failing)+pause > policy.Within
		if hopeless {
			p.fail(err)
			failed = 0
			continue
		}
		p.lease.client.retries.report(p.ctx, Retry{Err: err, Attempt: failed, Pause: pause})
		if sleep(p.ctx, pause) != nil {
			break
		}
	}
	if p.ctx.Err() != nil {
		p.fail(context.Cause(p.ctx))
	}
}

// awaitWork waits until there is something to send. It reports false when the pipeline has come to its end.
func (p *Pipeline) awaitWork() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.held == 0 && !p.closing && p.ctx.Err() == nil {
		p.work.Wait()
	}
	return p.held > 0 && p.ctx.Err() == nil
}

func (p *Pipeline) fail(cause error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.giveUp(cause)
}

// stream sends and hears over one stream. It returns how many writes it settled, and why it ended: nil where that was no fault.
func (p *Pipeline) stream() (settled int, err error) {
	l, err := p.connect()
	if err != nil {
		return 0, err
	}
	settled, err = l.follow()
	if err != nil && p.ctx.Err() == nil && errors.Is(err, ErrUnavailable) {
		c := p.lease.client
		c.prefer(int64(l.stream.place), (l.stream.place+1)%len(c.gateways))
	}
	return settled, err
}
