package store

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// use is what a statement is for. It decides which share of the connections the statement may take.
type use int

const (
	useReads        use = iota // lists, metrics, sweeps and all that is not named here
	useAcquires                // acquires, also those that join a queue
	useRequeues                // acquires that are sent again for a ticket
	useGrants                  // grants to waiters
	useReleases                // releases, breaks, waiters that leave
	useTransactions            // writes that are not in a batch
	useTables                  // transactions that may wait for rows of users' tables
	useBatches                 // batches of writes; Group bounds them, too
	useRenewals                // renewals, keepalives, heartbeats
	useLockWaits               // statements that have met a lock of another transaction, whatever they are for,
	useTableWaits              // and those of useTables
	useCount
)

const (
	// briefWait is how long a statement waits for a lock that another transaction holds, before it gives up its connection
	// and goes to those that wait for such locks. A commit takes less, unless something is wrong with it. While many wait,
	// something is, and this gets shorter, down to briefWaitMin.
	briefWait, briefWaitMin = 100 * time.Millisecond, 5 * time.Millisecond
	// lockTurnMin is the least time for which a statement waits for a lock once it has its turn.
	lockTurnMin = 10 * time.Millisecond
	// lockTurns is how many turns in a row are as long as --lock-timeout.
	lockTurns = 4
)

// lockSlotsMax is how many statements of one use may be in flight for one lock. More would only wait for its fence,
// each with a connection.
const lockSlotsMax = 2

// job is what a statement is for, and the locks whose fences it waits for.
type job struct {
	use   use
	locks []Name
	// bounded says that the statement bounds by itself how long it waits for locks of other transactions: it is sent once.
	bounded bool
	// waiting says that the statement has met such a lock, and has a turn now.
	waiting bool
	// lockWait, if not nil, is the argument of the statement that says how long it waits for fences, in milliseconds.
	// After a lock timeout it is set to 0, and the statement is sent once more.
	lockWait *int32
}

func onLock(use use, lock Name) job { return job{use: use, locks: []Name{lock}} }

// waits returns the share of the statements of this use that wait for locks of other transactions.
func (u use) waits() use {
	if u == useTables {
		return useTableWaits
	}
	return useLockWaits
}

// share is the share of the connections that the job takes of.
func (j job) share() use {
	if j.waiting {
		return j.use.waits()
	}
	return j.use
}

// bulkheads share out the connections, so that no lock, no kind of statement, and no transaction that a client leaves
// open takes those that others need (P13). A statement needs, in this order: a slot of each of its locks, one of its use,
// and, unless it is a renewal, one of the connections that are not reserved for renewals. It waits for each in order of
// arrival, without a connection.
//
// A statement that meets a lock of another transaction waits for it briefly. Then it was undone, and is sent once more
// with one of a few connections for such waits. There it has one turn. The more statements wait for a turn, the shorter
// it is, so that they all get theirs within about four --lock-timeouts.
type bulkheads struct {
	waitMax  time.Duration
	lockWait time.Duration // the longest turn
	shared   chan struct{} // all connections but those reserved for renewals
	uses     [useCount]chan struct{}
	wanting  [useCount]atomic.Int64 // statements that have or want a slot of the use
	waited   atomic.Int64           // statements that had to wait

	mu    sync.Mutex
	slots map[lockUse]*lockSlots
}

type lockUse struct {
	lock    Name
	use     use
	waiting bool
}

// lockSlots are there as long as a statement has or wants one of them.
type lockSlots struct {
	taken chan struct{}
	// bulkheads.mu guards these.
	wanting int
	held    bool // of waits for locks of other transactions: the last one has not got its lock, or is to come
}

// newBulkheads shares out the connections of a Store.
func newBulkheads(config Config) *bulkheads {
	connections := config.ConnectionsMax
	reserved := max(1, connections/8)
	b := &bulkheads{
		waitMax: config.StatementTimeout, lockWait: config.LockTimeout,
		shared: make(chan struct{}, connections-reserved), slots: map[lockUse]*lockSlots{},
	}
	for use, share := range [useCount]int{
		useReads: connections / 4, useAcquires: connections / 2, useRequeues: connections / 8,
		useGrants: connections / 4, useReleases: connections / 4, useTransactions: connections / 4,
		useTables: connections / 4, useBatches: connections, useRenewals: connections / 2,
		useLockWaits: connections / 8, useTableWaits: connections / 8,
	} {
		b.uses[use] = make(chan struct{}, max(1, share))
	}
	return b
}

// pass is what a statement has taken of the bulkheads.
type pass struct {
	from *bulkheads
	job  job
	held int // of the slots of its locks
	// lockWait is how long the statement waits for a lock; 0: as long as the session's statements do.
	lockWait time.Duration
}

// enter waits until a statement may take a connection. It returns an UnavailableError when ctx ends or the wait is too
// long. The caller calls leave after the statement.
func (b *bulkheads) enter(ctx context.Context, j job) (pass, error) {
	p := pass{from: b, job: j}
	if len(j.locks) > 1 {
		p.job.locks = slices.Sorted(slices.Values(j.locks)) // each once; the same order for all
	}
	for _, lock := range p.job.locks {
		if err := b.takeSlot(ctx, lockUse{lock, j.use, j.waiting}); err != nil {
			p.leaveSlots()
			return pass{}, err
		}
		p.held++
	}
	b.wanting[j.share()].Add(1)
	if err := b.take(ctx, b.uses[j.share()]); err != nil {
		b.wanting[j.share()].Add(-1)
		p.leaveSlots()
		return pass{}, err
	}
	if j.share() != useRenewals {
		if err := b.take(ctx, b.shared); err != nil {
			<-b.uses[j.share()]
			b.wanting[j.share()].Add(-1)
			p.leaveSlots()
			return pass{}, err
		}
	}
	p.lockWait = b.lockWaitOf(j)
	return p, nil
}

// lockWaitOf is the lockWait of a pass.
func (b *bulkheads) lockWaitOf(j job) time.Duration {
	waits := j.use.waits()
	waiting := time.Duration(b.wanting[waits].Load())
	switch {
	case j.waiting:
		turns := lockTurns * time.Duration(cap(b.uses[waits]))
		return max(b.lockWait*turns/max(turns, waiting), min(b.lockWait, lockTurnMin))
	case j.bounded || waiting == 0:
		return 0
	}
	return min(b.lockWait, max(briefWait/(1+waiting), briefWaitMin))
}

// isHeld reports whether one of the job's locks is known to be held by a transaction that others wait for.
func (b *bulkheads) isHeld(j job) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.ContainsFunc(j.locks, func(lock Name) bool {
		slots := b.slots[lockUse{lock, j.use, true}]
		return slots != nil && slots.held
	})
}

// noteHeld notes what a statement that had its turn has met. If it got its locks, the next ones need no turn.
func (b *bulkheads) noteHeld(j job, held bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, lock := range j.locks {
		if slots := b.slots[lockUse{lock, j.use, true}]; slots != nil {
			slots.held = held
		}
	}
}

func (p *pass) leave() {
	if p.job.share() != useRenewals {
		<-p.from.shared
	}
	<-p.from.uses[p.job.share()]
	p.from.wanting[p.job.share()].Add(-1)
	p.leaveSlots()
}

func (p *pass) leaveSlots() {
	for _, lock := range p.job.locks[:p.held] {
		p.from.leaveSlot(lockUse{lock, p.job.use, p.job.waiting})
	}
}

func (b *bulkheads) takeSlot(ctx context.Context, of lockUse) error {
	b.mu.Lock()
	slots := b.slots[of]
	if slots == nil {
		slots = &lockSlots{taken: make(chan struct{}, lockSlotsMax), held: true}
		if of.waiting {
			slots.taken = make(chan struct{}, 1) // a second one would only wait behind the first
		}
		b.slots[of] = slots
	}
	slots.wanting++
	b.mu.Unlock()
	err := b.take(ctx, slots.taken)
	if err != nil {
		b.forget(of, slots)
		return fmt.Errorf("others wait for lock %s: %w", of.lock, err)
	}
	return nil
}

func (b *bulkheads) leaveSlot(of lockUse) {
	b.mu.Lock()
	slots := b.slots[of]
	b.mu.Unlock()
	<-slots.taken
	b.forget(of, slots)
}

func (b *bulkheads) forget(of lockUse, slots *lockSlots) {
	b.mu.Lock()
	defer b.mu.Unlock()
	slots.wanting--
	if slots.wanting == 0 {
		delete(b.slots, of)
	}
}

// take puts a token into slots, which are a semaphore: those that wait get in, first come, first served.
func (b *bulkheads) take(ctx context.Context, slots chan struct{}) error {
	if err := ctx.Err(); err != nil {
		return NotApplied(context.Cause(ctx))
	}
	select {
	case slots <- struct{}{}:
		return nil
	default:
	}
	b.waited.Add(1)
	timer := time.NewTimer(b.waitMax)
	defer timer.Stop()
	select {
	case slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return NotApplied(context.Cause(ctx))
	case <-timer.C:
		return NotApplied(ErrNoConnection)
	}
}
