package load

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/fencegate/fencegate/lockclient"
	"github.com/fencegate/fencegate/lockclient/api"
)

// retryPause is before what was not served is sent again.
const retryPause = 50 * time.Millisecond

// acquire sends an acquire until it is answered. It returns nil if the lock was not granted.
func (c *client) acquire(l *lockHistory, shared bool) *held {
	// Each acquire has another owner: an owner that left a lease to expire, and waits for the same lock, would be a
	// deadlock.
	c.acquires++
	owner := fmt.Sprintf("%s.%d", c.name, c.acquires)
	ttlMS := c.run.habits.ttlLeastMS + c.random.Int64N(c.run.habits.ttlSpreadMS)
	request := api.AcquireRequest{OwnerID: owner, TTLMS: &ttlMS, RequestID: &owner}
	op := opAcquire
	if shared {
		request.Mode = "shared"
	}
	if c.chance(c.run.habits.waiting) {
		op, request.WaitMS = opWait, 50+c.random.Int64N(waitMostMS)
	}
	acquiring := l.acquireSent(owner)
	if c.run.sendNewestToken && acquiring.known != nil {
		request.NewestToken = acquiring.known.lease.FencingToken
	}
	for first := true; c.sending.Err() == nil; first = false {
		lose := first && c.chance(c.run.habits.lost)
		lease, err := send(c, op, lose, time.Duration(request.WaitMS)*time.Millisecond,
			func(ctx context.Context) (api.Lease, error) {
				return c.gateway().Acquire(ctx, l.name, request)
			})
		switch {
		case err == nil:
			c.run.tally.count(func(n *Counts) {
				n.Grants++
				if shared {
					n.SharedGrants++
				}
			})
			grant := acquiring.granted(lease)
			c.run.observer.Granted(lease, grant.sent, grant.answered)
			return &held{grant: grant, beat: time.Now(), ttl: time.Duration(ttlMS) * time.Millisecond}
		case errors.Is(err, lockclient.ErrLockHeld) && holds(lockclient.ProblemOf(err), owner):
			c.run.unexpected(fmt.Sprintf("%s waits for itself: %v", owner, err))
			return nil
		case errors.Is(err, lockclient.ErrLockHeld), errors.Is(err, lockclient.ErrLeaseLost):
			return nil // lost: it had been granted, and ended before the answer came
		case !lose && !c.unserved(err):
			return nil
		}
		if c.working.Err() != nil {
			request.WaitMS = 0
		}
	}
	return nil
}

// holds says that a refusal names this owner, whose request_id was sent again, as the holder.
func holds(problem *api.Problem, owner string) bool {
	return problem != nil && problem.Holder != nil && problem.Holder.OwnerID == owner
}

// renew reports whether the lease was renewed.
func (c *client) renew(h *held) bool {
	lease, err := send(c, opRenew, false, 0, func(ctx context.Context) (api.Lease, error) {
		return c.gateway().Renew(ctx, h.history.name, api.RenewRequest{
			OwnerID: h.lease.OwnerID, LeaseID: h.lease.LeaseID, FencingToken: h.lease.FencingToken,
		})
	})
	switch {
	case err == nil:
		h.renewed(lease)
		h.beat = time.Now()
		return true
	case errors.Is(err, lockclient.ErrLeaseLost):
		h.gone = true
	default:
		c.unserved(err)
	}
	if errors.Is(err, lockclient.ErrOutcomeUnknown) {
		h.renewalLost()
	}
	return false
}

// release sends a release until an answer shows that the lease has ended.
func (c *client) release(h *held) {
	for first := true; c.sending.Err() == nil; first = false {
		replacedBy := h.releaseSent()
		_, err := send(c, opRelease, false, 0, func(ctx context.Context) (struct{}, error) {
			return struct{}{}, c.gateway().Release(ctx, h.history.name, api.ReleaseRequest{
				OwnerID: h.lease.OwnerID, LeaseID: h.lease.LeaseID, FencingToken: h.lease.FencingToken,
			})
		})
		if err == nil && first {
			h.released(replacedBy)
		}
		if err == nil || errors.Is(err, lockclient.ErrLeaseLost) || !c.unserved(err) {
			return
		}
	}
}

// write sends one numbered write until its outcome is known, and reports whether it was admitted.
func (c *client) write(h *held) bool {
	h.sequence++
	n := number{h.lease.FencingToken, h.sequence}
	key, value := c.run.compose(c.random, n, h.lease.OwnerID)
	w := h.begins(h.sequence, key, value)
	c.run.tally.count(func(n *Counts) { n.Writes++ })
	defer c.endWrite(w)

	if c.chance(c.run.habits.lost) {
		c.sendWrite(w, true)
	}
	if c.chance(c.run.habits.twice) && c.sendTwice(w) {
		return true
	}
	for c.sending.Err() == nil {
		switch c.sendWrite(w, false) {
		case admitted:
			if c.chance(c.run.habits.repeated) {
				c.sendWrite(w, false)
			}
			return true
		case refused, excluded:
			h.gone = true
			return false
		case unanswered:
			c.rest()
			if w.isRuledOut() && c.chance(c.run.habits.leaving) {
				return true
			}
		}
	}
	return false
}

// sendTwice makes two attempts at the same time, and reports whether one was admitted.
func (c *client) sendTwice(w *write) bool {
	var both sync.WaitGroup
	var verdicts [2]verdict
	for i := range verdicts {
		gateway := c.gateway()
		both.Go(func() { verdicts[i] = c.sendWriteTo(gateway, w, false) })
	}
	both.Wait()
	return verdicts[0] == admitted || verdicts[1] == admitted
}

func (c *client) endWrite(w *write) {
	result, replays := w.end()
	c.run.observer.Wrote(result)
	c.run.tally.count(func(n *Counts) {
		n.Repeats += int64(max(0, result.Attempts-1))
		n.Replays += replays
		switch {
		case result.Applied:
			n.Admitted++
		case result.Doubtful:
			n.Doubtful++
		}
	})
}

// sendWrite makes one attempt.
func (c *client) sendWrite(w *write, lose bool) verdict { return c.sendWriteTo(c.gateway(), w, lose) }

func (c *client) sendWriteTo(gateway *lockclient.API, w *write, lose bool) verdict {
	a := w.send()
	result, err := send(c, opWrite, lose, 0, func(ctx context.Context) (api.WriteResult, error) {
		return c.run.put(ctx, gateway, w.history.name, w.key, lockclient.Write{
			Token: tokenOf(w.number), ContentType: "application/json", Value: []byte(w.value),
		})
	})
	problem := lockclient.ProblemOf(err)
	switch {
	case err == nil:
		a.admitted(result)
		return admitted
	case problem == nil:
		c.run.unexpected(err.Error())
		a.lost("foreign_answer")
		return unanswered
	case problem.Code == api.CodeUnavailable:
		if !lose {
			c.run.unavailable(err)
		}
		if problem.Outcome == api.OutcomeNotApplied {
			a.refused(string(problem.Code), false)
		} else {
			a.lost(string(problem.Code))
		}
		return unanswered
	case problem.Code == api.CodeTokenUnknown && c.run.checker.commitsMayBeLost:
		a.refused(string(problem.Code), false)
		return refused
	case problem.Code != api.CodeTokenStale:
		c.run.unexpected(err.Error())
		a.refused(string(problem.Code), false)
		return refused
	}
	if !w.shared && problem.LastToken != nil && problem.LastSequence != nil &&
		(number{*problem.LastToken, *problem.LastSequence}) == w.number {
		c.run.unexpected(fmt.Sprintf("the write %s was not taken for a replay: %v", w.number, err))
	}
	never := neverApplied(problem, w.number)
	if problem.Reason == "reused" && !w.shared {
		// The client sends the next write after the outcome of this one, so nothing newer can be applied under this token.
		c.run.unexpected(err.Error())
	}
	a.refused(string(problem.Code)+"/"+problem.Reason, never)
	if never {
		return excluded
	}
	return refused
}

// neverApplied says that a refusal as stale shows a fence that has not seen this write: nor will it, since what is
// stale stays so.
func neverApplied(problem *api.Problem, n number) bool {
	if problem.LastToken == nil || problem.LastSequence == nil {
		return false
	}
	return number{*problem.LastToken, *problem.LastSequence}.less(n)
}

// send makes one call, and counts it. With lose it is given up at once, at a moment when it may be anywhere: as if the
// answer were lost.
func send[T any](
	c *client, op string, lose bool, wait time.Duration, call func(context.Context) (T, error),
) (T, error) {
	limit := c.run.habits.patience + wait
	if lose {
		limit = time.Duration(c.random.IntN(4000)) * time.Microsecond
	}
	ctx, cancel := context.WithTimeout(c.sending, limit)
	defer cancel()
	begun := time.Now()
	result, err := call(ctx)
	if lose && errors.Is(err, lockclient.ErrUnavailable) {
		c.run.tally.count(func(n *Counts) { n.LostAnswers++ })
	} else {
		c.run.tally.note(op, time.Since(begun), err)
	}
	return result, err
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
	forgotten := c.run.checker.commitsMayBeLost && errors.Is(err, lockclient.ErrNotFound) // the lock, by the new database
	if !forgotten {
		c.run.unexpected(fmt.Sprintf("%s: %v", c.name, err))
	}
	return false
}

// rest pauses a client that is not served, to leave the processor to the others.
func (c *client) rest() { sleep(c.sending, retryPause) }
