package store

import (
	"math"
	"time"
)

const (
	paceSmoothing = 8 // of the time in the database: an eighth of the newest
	paceMax       = 2
	paceWindow    = 16 // batches, in which the shortest wait counts
	paceOutlier   = 8
	paceOverdue   = 2 * time.Millisecond
)

// pace finds how many batches should be in flight: while one waits for its commit and for the way there and back, another keeps the
// database at work. That is 1 + wait/work: with a disk that flushes in 40 µs one; with one that takes a millisecond, or a database that is
// far, two. More are not worth it: PostgreSQL flushes for all who wait when the flush before is done, and what comes while two are in
// flight goes together in the next. The wait is the shortest among the last: the others have waited for a processor as well.
type pace struct {
	work    float64 // seconds, smoothed
	wait    float64 // seconds, the shortest of the last window
	coming  float64 // the shortest of this window
	noted   int     // in this window
	current int
}

// note takes the times of a batch.
func (p *pace) note(total, work time.Duration) {
	if work <= 0 {
		return
	}
	wait := max(0, (total - work).Seconds())
	if p.work == 0 {
		p.work, p.wait, p.coming = work.Seconds(), wait, wait
	}
	p.work += (min(work.Seconds(), paceOutlier*p.work) - p.work) / paceSmoothing // a wait for a lock is no work
	p.wait, p.coming = min(p.wait, wait), min(p.coming, wait)
	if p.noted++; p.noted >= paceWindow {
		p.wait, p.coming, p.noted = p.coming, math.Inf(1), 0
	}
	p.current = min(1+int(p.wait/p.work), paceMax)
}

// target returns how many batches should be in flight.
func (p *pace) target() int { return max(1, p.current) }

// overdue returns how long after the start of a batch it takes longer than usual.
func (p *pace) overdue() time.Duration {
	return paceOverdue + 4*time.Duration((p.work+p.wait)*float64(time.Second))
}
