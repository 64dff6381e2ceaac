// Package readiness finds out whether the database takes commits, and if not, why.
//
// A Prober commits something tiny once a second, on a connection of its own: connections of the pool may all be stuck
// in what it is to find. There is never a second probe while one hangs. A second connection then looks at what the
// database is doing with it, and so tells a commit that waits for a standby from a database that does not answer.
//
// The latest times after which it knows:
//
//	1 s  the next probe begins; an error is an answer
//	3 s  the probe has hung for 2 s; the second connection finds that it waits for a standby
//	4 s  the second connection has no answer within 1 s: unreachable; the probe is given up, and the next one connects anew
//	7 s  the database answers, and the commit has taken more than 5 s: slow
package readiness

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/internal/timing"
)

const (
	hangsAfter     = 2 * time.Second
	lookInterval   = time.Second
	slowAfter      = 5 * time.Second
	lookTimeout    = time.Second
	connectTimeout = 10 * time.Second // for all hosts of the URL
)

// Database is what a Prober probes.
type Database interface {
	// OpenProbe connects. It returns ErrUnavailable.
	OpenProbe(ctx context.Context) (store.Probe, error)
	// RequireConnection returns ErrUnavailable if the pool has no connection and can't make one.
	RequireConnection(ctx context.Context) error
	// ReasonOf says why a statement failed, or a connection was not made.
	ReasonOf(err error) store.Reason
}

// Prober probes a database. Its methods but Run are safe for concurrent use.
type Prober struct {
	db         Database
	interval   time.Duration
	since      time.Time
	conn       store.Probe // nil: none; of the probe under way
	connecting atomic.Bool // of the probe under way
	last       atomic.Pointer[result]
	probed     chan struct{} // closed with the first result
}

// result is what is known since the last probe; nil: ready.
type result struct{ notReady *NotReadyError }

// New returns a Prober that begins a probe in each interval, once it is Run.
func New(on Database, interval time.Duration) *Prober {
	return &Prober{db: on, interval: interval, since: time.Now(), probed: make(chan struct{})}
}

// Ready returns nil if the last probe has committed, and otherwise a NotReadyError. It waits for the first one until
// ctx ends.
func (p *Prober) Ready(ctx context.Context) error {
	select {
	case <-p.probed:
	case <-ctx.Done():
	}
	if notReady := p.NotReady(); notReady != nil {
		return notReady
	}
	return nil
}

// NotReady returns why the last probe has not committed, or nil if it has. Before the first one it is Unreachable.
func (p *Prober) NotReady() *NotReadyError {
	if last := p.last.Load(); last != nil {
		return last.notReady
	}
	return &NotReadyError{Unreachable, p.since, store.NotApplied(errors.New("it did not answer yet"))}
}

// Run probes until ctx ends. It passes the reason to onChange when there is another one than before, and nil when the
// database takes commits again.
func (p *Prober) Run(ctx context.Context, onChange func(*NotReadyError)) {
	defer p.disconnect()
	for ctx.Err() == nil {
		next := time.Now().Add(p.interval)
		err := p.probe(ctx, onChange)
		if ctx.Err() == nil {
			p.set(err, onChange)
		}
		timing.Sleep(ctx, time.Until(next))
	}
}

func (p *Prober) set(err error, onChange func(*NotReadyError)) {
	var before, now *NotReadyError
	last := p.last.Load()
	if last != nil {
		before = last.notReady
	}
	if err != nil {
		now = &NotReadyError{p.reasonOf(err), time.Now(), err}
		if before != nil {
			now.Since = before.Since
		}
	}
	p.last.Store(&result{now})
	if last == nil {
		close(p.probed)
	}
	if (before == nil) != (now == nil) || now != nil && now.Reason != before.Reason {
		onChange(now)
	}
}

// probe commits once. While the commit hangs, it sets why.
func (p *Prober) probe(ctx context.Context, onChange func(*NotReadyError)) error {
	ctx, giveUp := context.WithCancel(ctx)
	defer giveUp()
	committed := make(chan error, 1)
	begun := time.Now()
	go func() { committed <- p.commit(ctx) }()
	look := onlooker{of: p}
	defer look.close()
	for wait := hangsAfter; ; wait = lookInterval {
		select {
		case err := <-committed:
			return err
		case <-time.After(wait):
		}
		var err error
		if p.connecting.Load() {
			err = hungError{Unreachable, "it does not answer"}
		} else if err = look.at(ctx, time.Since(begun)); err != nil && p.reasonOf(err) == Unreachable {
			giveUp()
			<-committed //nolint:errcheck // it fails, since its context has ended
			return err
		}
		if err != nil {
			p.set(err, onChange)
		}
	}
}

// commit probes on the connection that there is. If that fails, the connection may have been cut: what counts is a new
// one.
func (p *Prober) commit(ctx context.Context) error {
	if p.conn != nil {
		if p.conn.Commit(ctx) == nil {
			return p.requireConnection(ctx)
		}
		p.disconnect()
	}
	if err := p.connect(ctx); err != nil {
		return err
	}
	if err := p.conn.Commit(ctx); err != nil {
		p.disconnect()
		return err
	}
	return p.requireConnection(ctx)
}

func (p *Prober) connect(ctx context.Context) (err error) {
	p.connecting.Store(true)
	defer p.connecting.Store(false)
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	p.conn, err = p.db.OpenProbe(ctx)
	return p.unanswered(err)
}

func (p *Prober) requireConnection(ctx context.Context) error {
	p.connecting.Store(true)
	defer p.connecting.Store(false)
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	return p.unanswered(p.db.RequireConnection(ctx))
}

func (p *Prober) disconnect() {
	if p.conn != nil {
		p.conn.Close()
		p.conn = nil
	}
}

// onlooker finds out, on a connection of its own, why a probe hangs. It keeps the connection as long as the probe
// hangs: when commits wait, other clients soon use up all connections.
type onlooker struct {
	of   *Prober
	conn store.Probe
}

// at returns why a probe that has hung for so long hangs; nil: that is not known yet.
func (o *onlooker) at(ctx context.Context, hung time.Duration) (err error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	if o.conn == nil {
		if o.conn, err = o.of.db.OpenProbe(ctx); err != nil {
			return o.of.unanswered(err)
		}
	}
	probes, err := o.conn.UnderWay(ctx)
	switch {
	case err != nil:
		o.close()
		return o.of.unanswered(err)
	case probes.Count == 0:
		return hungError{Unreachable, "the connection of the probe is lost, and the database does not know it"}
	case probes.WaitsForStandby():
		return hungError{WaitsForStandby, "commits wait for a synchronous standby that does not confirm them"}
	case hung > slowAfter:
		return hungError{Slow, fmt.Sprintf("a commit takes longer than %s (it waits for %s)", slowAfter, probes.WaitFor)}
	}
	return nil
}

func (o *onlooker) close() {
	if o.conn != nil {
		o.conn.Close()
		o.conn = nil
	}
}

// hungError says why a probe hangs. A text, since the driver has no error for it.
type hungError struct {
	reason Reason
	text   string
}

func (e hungError) Error() string { return e.text }

// unanswered turns a timeout of a connection into Unreachable; that of a commit is Slow.
func (p *Prober) unanswered(err error) error {
	if p.db.ReasonOf(err) == store.ReasonTimeout {
		return hungError{Unreachable, "it does not answer"}
	}
	return err
}
