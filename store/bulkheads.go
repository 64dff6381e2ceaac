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
	useCount
)

// lockSlotsMax is how many statements of one use may be in flight for one lock. More would only wait for its fence,
// each with a connection.
const lockSlotsMax = 2

// job is what a statement is for, and the locks whose fences it waits for.
type job struct {
	use   use
	locks []Name
	// lockWait, if not nil, is the argument of the statement that says how long it waits for fences, in milliseconds.
	// After a lock timeout it is set to 0, and the statement is sent once more.
	lockWait *int32
}

func onLock(use use, lock Name) job { return job{use: use, locks: []Name{lock}} }

// bulkheads share out the connections, so that no lock and no kind of statement takes those that others need (P13). A
// statement needs, in this order: a slot of each of its locks, one of its use, and, unless it is a renewal, one of the
// connections that are not reserved for renewals. It waits for each in order of arrival, without a connection.
type bulkheads struct {
	waitMax time.Duration
	shared  chan struct{} // all connections but those reserved for renewals
	uses    [useCount]chan struct{}
	waited  atomic.Int64 // statements that had to wait

	mu    sync.Mutex
	slots map[lockUse]*lockSlots
}

type lockUse struct {
	lock Name
	use  use
}

// lockSlots are there as long as a statement has or wants one of them.
type lockSlots struct {
	taken   chan struct{}
	wanting int // guarded by bulkheads.mu
}

// newBulkheads shares out so many connections.
func newBulkheads(connections int, waitMax time.Duration) *bulkheads {
	reserved := max(1, connections/8)
	b := &bulkheads{waitMax: waitMax, shared: make(chan struct{}, connections-reserved), slots: map[lockUse]*lockSlots{}}
	for use, share := range [useCount]int{
		useReads: connections / 4, useAcquires: connections / 2, useRequeues: connections / 8,
		useGrants: connections / 4, useReleases: connections / 4, useTransactions: connections / 4,
		useTables: connections / 4, useBatches: connections, useRenewals: connections / 2,
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
}

// enter waits until a statement may take a connection. It returns an UnavailableError when ctx ends or the wait is too
// long. The caller calls leave after the statement.
func (b *bulkheads) enter(ctx context.Context, j job) (pass, error) {
	p := pass{from: b, job: j}
	if len(j.locks) > 1 {
		p.job.locks = slices.Sorted(slices.Values(j.locks)) // each once; the same order for all
	}
	for _, lock := range p.job.locks {
		if err := b.takeSlot(ctx, lockUse{lock, j.use}); err != nil {
			p.leaveSlots()
			return pass{}, err
		}
		p.held++
	}
	if err := b.take(ctx, b.uses[j.use]); err != nil {
		p.leaveSlots()
		return pass{}, err
	}
	if j.use != useRenewals {
		if err := b.take(ctx, b.shared); err != nil {
			<-b.uses[j.use]
			p.leaveSlots()
			return pass{}, err
		}
	}
	return p, nil
}

func (p *pass) leave() {
	if p.job.use != useRenewals {
		<-p.from.shared
	}
	<-p.from.uses[p.job.use]
	p.leaveSlots()
}

func (p *pass) leaveSlots() {
	for _, lock := range p.job.locks[:p.held] {
		p.from.leaveSlot(lockUse{lock, p.job.use})
	}
}

func (b *bulkheads) takeSlot(ctx context.Context, of lockUse) error {
	b.mu.Lock()
	slots := b.slots[of]
	if slots == nil {
		slots = &lockSlots{taken: make(chan struct{}, lockSlotsMax)}
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
