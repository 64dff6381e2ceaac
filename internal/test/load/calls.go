package load

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/fencegate/fencegate/internal/test/spec"
	"github.com/fencegate/fencegate/lockclient"
	"github.com/fencegate/fencegate/store"
)

// retryPause is before what was not served is sent again.
const retryPause = 50 * time.Millisecond

// acquire sends an acquire until it is answered. It returns nil if the lock was not granted.
func (c *client) acquire(l *lock, shared bool) *held {
	// Each acquire has another owner: an owner that left a lease to expire, and waits for the same lock, would be a
	// deadlock.
	c.acquires++
	owner := fmt.Sprintf("%s.%d", c.name, c.acquires)
	ttl := (c.run.habits.ttlMin + c.upTo(c.run.habits.ttlSpread)).Truncate(time.Millisecond)
	op := spec.Op{Kind: spec.Acquire, Name: l.name, Owner: owner, Request: owner, TTL: ttl}
	if shared {
		op.Mode = store.Shared
	}
	measured := opAcquire
	if c.chance(c.run.habits.waiting) {
		measured, op.Wait = opWait, (50*time.Millisecond + c.upTo(waitMost)).Truncate(time.Millisecond)
	}
	for first := true; c.sending.Err() == nil; first = false {
		if c.run.sendNewestToken {
			op.NewestToken = l.newest.Load() // also when it is sent again: others may have been granted the lock since
		}
		lose := first && c.chance(c.run.habits.lost)
		answer, err := c.send(measured, op, lose)
		switch {
		case answer.Code == spec.CodeGranted:
			c.run.tally.count(func(n *Counts) {
				n.Grants++
				if shared {
					n.SharedGrants++
				}
			})
			l.know(answer.Token)
			return &held{lock: l, owner: owner, token: answer.Token, id: answer.ID, shared: shared, ttl: ttl, beat: time.Now()}
		case answer.Code == spec.CodeHeld && answer.Owner == owner:
			c.run.unexpected(fmt.Sprintf("%s waits for itself: %v", owner, err))
			return nil
		case answer.Code == spec.CodeHeld, answer.Code == spec.CodeLost:
			return nil // lost: it had been granted, and ended before the answer came
		case !lose && !c.unserved(err):
			return nil
		}
		if c.working.Err() != nil {
			op.Wait = 0
		}
	}
	return nil
}

// op is an operation on the lease.
func (h *held) op(kind spec.Kind) spec.Op {
	return spec.Op{Kind: kind, Name: h.lock.name, Owner: h.owner, Token: h.token, LeaseID: h.id}
}

// renew reports whether the lease was renewed.
func (c *client) renew(h *held) bool {
	answer, err := c.send(opRenew, h.op(spec.Renew), false)
	switch answer.Code {
	case spec.CodeRenewed:
		h.beat = time.Now()
		return true
	case spec.CodeLost:
		h.gone = true
	default:
		c.unserved(err)
	}
	return false
}

// release sends a release until an answer shows that the lease has ended.
func (c *client) release(h *held) {
	for c.sending.Err() == nil {
		answer, err := c.send(opRelease, h.op(spec.Release), false)
		if err == nil || answer.Code == spec.CodeLost || !c.unserved(err) {
			return
		}
	}
}

// write sends one numbered write until its outcome is known, and reports whether it was admitted.
func (c *client) write(h *held) bool {
	h.sequence++
	sequence := h.sequence
	w := &write{op: c.run.compose(c.random, spec.Op{Kind: spec.Put, Name: h.lock.name, Owner: h.owner, Token: h.token,
		Sequence: &sequence})}
	c.run.tally.count(func(n *Counts) { n.Writes++ })
	defer c.endWrite(w)

	if c.chance(c.run.habits.lost) {
		c.sendWrite(w, true)
	}
	if c.chance(c.run.habits.twice) && c.sendTwice(w) {
		return true
	}
	for c.sending.Err() == nil {
		switch code := c.sendWrite(w, false); code {
		case spec.CodeAdmitted:
			if c.chance(c.run.habits.repeated) {
				c.sendWrite(w, false)
			}
			return true
		case spec.CodeUnknown, spec.CodeNotApplied:
			c.rest()
			if !w.doubtful && c.chance(c.run.habits.leaving) {
				return true
			}
		default:
			h.gone = true
			return false
		}
	}
	return false
}

// write is one numbered write, and what came of it.
type write struct {
	op                 spec.Op
	attempts, replays  int64
	admitted, doubtful bool // doubtful: an attempt has no answer
}

// sendTwice makes two attempts at the same time, and reports whether one was admitted.
func (c *client) sendTwice(w *write) bool {
	var both sync.WaitGroup
	var answers [2]spec.Answer
	var failed [2]error
	for i := range answers {
		gateway := c.gateway()
		both.Go(func() { answers[i], failed[i] = c.sendTo(gateway, opWrite, w.op, false) })
	}
	both.Wait()
	for i, answer := range answers {
		c.note(w, answer, failed[i], false)
	}
	return w.admitted
}

func (c *client) endWrite(w *write) {
	c.run.tally.count(func(n *Counts) {
		n.Repeats += max(0, w.attempts-1)
		n.Replays += w.replays
		switch {
		case w.admitted:
			n.Admitted++
		case w.doubtful:
			n.Doubtful++
		}
	})
}

// sendWrite makes one attempt, and returns the code of its answer.
func (c *client) sendWrite(w *write, lose bool) string {
	answer, err := c.send(opWrite, w.op, lose)
	c.note(w, answer, err, lose)
	return answer.Code
}

// note counts an attempt.
func (c *client) note(w *write, answer spec.Answer, err error, lose bool) {
	w.attempts++
	switch answer.Code {
	case spec.CodeAdmitted:
		w.admitted = true
		if answer.Replayed {
			w.replays++
		}
	case spec.CodeUnknown, spec.CodeNotApplied:
		w.doubtful = w.doubtful || answer.Code == spec.CodeUnknown
		if lockclient.ProblemOf(err) == nil {
			c.run.unexpected(err.Error())
		} else if !lose {
			c.run.unavailable(err)
		}
	default:
		allowed := answer.Code == string(store.VerdictTokenStale) ||
			answer.Code == string(store.VerdictTokenUnknown) && c.run.forgets
		if !allowed {
			c.run.unexpected(err.Error())
		}
	}
}

// send makes one call to a gateway.
func (c *client) send(measured string, op spec.Op, lose bool) (spec.Answer, error) {
	return c.sendTo(c.gateway(), measured, op, lose)
}

// sendTo makes one call, records it, and counts it. With lose it is given up at once, at a moment when it may be
// anywhere: as if the answer were lost.
func (c *client) sendTo(to *lockclient.API, measured string, op spec.Op, lose bool) (spec.Answer, error) {
	limit := c.run.habits.patience + op.Wait
	if lose {
		limit = c.upTo(4 * time.Millisecond)
	}
	ctx, cancel := context.WithTimeout(c.sending, limit)
	defer cancel()
	begun := time.Now()
	call, err := spec.MakeCall(c.run.observer, c.number, op, func() (spec.Answer, spec.Choice, error) {
		return Perform(ctx, to, op)
	})
	if lose && errors.Is(err, lockclient.ErrUnavailable) {
		c.run.tally.count(func(n *Counts) { n.LostAnswers++ })
	} else {
		c.run.tally.note(measured, time.Since(begun), err)
	}
	return call.Answer, err
}

// unserved reports whether a call failed as it may while a gateway or its database is down; then the client pauses.
// Anything else is noted: whatever is broken, a gateway answers with the truth or not at all.
func (c *client) unserved(err error) bool {
	if errors.Is(err, lockclient.ErrUnavailable) || errors.Is(err, lockclient.ErrRateLimited) ||
		errors.Is(err, context.Canceled) { // the end of the run
		c.run.unavailable(err)
		c.rest()
		return true
	}
	if !c.run.forgets || !errors.Is(err, lockclient.ErrNotFound) { // the lock, by the new database
		c.run.unexpected(fmt.Sprintf("%s: %v", c.name, err))
	}
	return false
}

// rest pauses a client that is not served, to leave the processor to the others.
func (c *client) rest() { sleep(c.sending, retryPause) }
