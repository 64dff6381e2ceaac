package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencegate/fencegate/store"
)

// purpose is what a statement is for. It decides which share of the connections the statement may take.
type purpose int

const (
	forReads        purpose = iota // lists, metrics, sweeps and all that is not named here
	forAcquires                    // acquires, also those that join a queue, and the policies that they go by
	forRequeues                    // acquires that are sent again for a ticket
	forGrants                      // grants to waiters
	forReleases                    // releases, breaks, waiters that leave
	forTransactions                // writes that are not in a batch
	forTables                      // transactions that may wait for rows of users' tables
	forBatches                     // batches of writes; Group bounds them, too
	forRenewals                    // renewals, keepalives, heartbeats
	forLockWaits                   // statements that have met a lock of another transaction, whatever they are for,
	forTableWaits                  // and those of forTables
	purposeCount
)

const (
	// briefWait is how long a statement waits for a lock of another transaction before it gives up its connection and
	// joins the statements that wait for such locks. A healthy commit takes less time. While many statements wait, the
	// time shrinks, down to briefWaitMin.
	briefWait, briefWaitMin = 100 * time.Millisecond, 5 * time.Millisecond
	// lockTurnMin is the least time for which a statement waits for a lock once it has its turn.
	lockTurnMin = 10 * time.Millisecond
	// lockTurns is how many turns in a row are as long as --lock-timeout.
	lockTurns = 4
)

// lockSlotsMax is how many statements of one purpose may be in flight for one lock. More would only wait for its
// fence, each with a connection.
const lockSlotsMax = 2

// statement describes a statement to the bulkheads: its purpose, and the locks whose fences it waits for.
type statement struct {
	purpose purpose
	locks   []store.Name
	// bounded says that the statement itself bounds its waits for locks of other transactions: it is sent once.
	bounded bool
	// restart, if not nil, forgets the rows that were scanned: they are of a try that was undone.
	restart func()
	// waiting says that the statement has met such a lock, and has a turn now.
	waiting bool
	// lockWait, if not nil, is the argument of the statement that says how long it waits for fences, in milliseconds.
	// After a lock timeout it is set to 0, and the statement is sent once more.
	lockWait *int32
}

func onLock(purpose purpose, lock store.Name) statement {
	return statement{purpose: purpose, locks: []store.Name{lock}}
}

// waits returns the share of the statements of this purpose that wait for locks of other transactions.
func (p purpose) waits() purpose {
	if p == forTables {
		return forTableWaits
	}
	return forLockWaits
}

// share returns the share of the connections from which the statement takes one.
func (stmt statement) share() purpose {
	if stmt.waiting {
		return stmt.purpose.waits()
	}
	return stmt.purpose
}

// bulkheads share out the connections, so that no lock, kind of statement or open transaction of a client takes the
// connections that others need (P13). A statement needs, in this order: a slot of each of its locks, one of its share,
// and, unless it is a renewal, one of the connections that are not reserved for renewals. It waits for each in order of
// arrival, without a connection.
//
// A statement that meets a lock of another transaction waits for it briefly. Then PostgreSQL rolls it back, and it is
// sent once more, with one of a few connections for such waits. There it has one turn. The more statements wait, the
// shorter the turns are, so that all get one within about four --lock-timeouts.
type bulkheads struct {
	waitMax  time.Duration
	lockWait time.Duration // the longest turn
	shared   chan struct{} // all connections but those reserved for renewals
	shares   [purposeCount]chan struct{}
	wanting  [purposeCount]atomic.Int64 // statements that have or want a slot of the share
	waited   atomic.Int64               // statements that had to wait

	mu    sync.Mutex
	slots map[lockSlotsKey]*lockSlots
}

type lockSlotsKey struct {
	lock    store.Name
	purpose purpose
	waiting bool
}

// lockSlots exist as long as a statement has or wants one of them.
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
		shared: make(chan struct{}, connections-reserved), slots: map[lockSlotsKey]*lockSlots{},
	}
	for purpose, share := range [purposeCount]int{
		forReads: connections / 4, forAcquires: connections / 2, forRequeues: connections / 8,
		forGrants: connections / 4, forReleases: connections / 4, forTransactions: connections / 4,
		forTables: connections / 4, forBatches: connections, forRenewals: connections / 2,
		forLockWaits: connections / 8, forTableWaits: connections / 8,
	} {
		b.shares[purpose] = make(chan struct{}, max(1, share))
	}
	return b
}

// permit is what a statement has taken of the bulkheads.
type permit struct {
	from *bulkheads
	stmt statement
	held int // of the slots of its locks
	// lockWait is how long the statement waits for a lock; 0: as long as the session's statements do.
	lockWait time.Duration
}

// enter waits until a statement may take a connection. It returns an UnavailableError when ctx ends or the wait is too
// long. The caller calls leave after the statement.
func (b *bulkheads) enter(ctx context.Context, stmt statement) (permit, error) {
	p := permit{from: b, stmt: stmt}
	if len(stmt.locks) > 1 {
		p.stmt.locks = slices.Sorted(slices.Values(stmt.locks)) // each once; the same order for all
	}
	for _, lock := range p.stmt.locks {
		if err := b.takeSlot(ctx, lockSlotsKey{lock, stmt.purpose, stmt.waiting}); err != nil {
			p.leaveSlots()
			return permit{}, err
		}
		p.held++
	}
	b.wanting[stmt.share()].Add(1)
	if err := b.take(ctx, b.shares[stmt.share()]); err != nil {
		b.wanting[stmt.share()].Add(-1)
		p.leaveSlots()
		return permit{}, err
	}
	if stmt.share() != forRenewals {
		if err := b.take(ctx, b.shared); err != nil {
			<-b.shares[stmt.share()]
			b.wanting[stmt.share()].Add(-1)
			p.leaveSlots()
			return permit{}, err
		}
	}
	p.lockWait = b.lockWaitOf(stmt)
	return p, nil
}

// lockWaitOf is the lockWait of a statement's permit.
func (b *bulkheads) lockWaitOf(stmt statement) time.Duration {
	waits := stmt.purpose.waits()
	waiting := time.Duration(b.wanting[waits].Load())
	switch {
	case stmt.waiting:
		turns := lockTurns * time.Duration(cap(b.shares[waits]))
		return max(b.lockWait*turns/max(turns, waiting), min(b.lockWait, lockTurnMin))
	case stmt.bounded || waiting == 0:
		return 0
	}
	return min(b.lockWait, max(briefWait/(1+waiting), briefWaitMin))
}

// isHeld reports whether one of the statement's locks is known to be held by a transaction that others wait for.
func (b *bulkheads) isHeld(stmt statement) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.ContainsFunc(stmt.locks, func(lock store.Name) bool {
		slots := b.slots[lockSlotsKey{lock, stmt.purpose, true}]
		return slots != nil && slots.held
	})
}

// noteHeld notes whether a statement failed to get its locks in its turn. If it got them, the next ones need no turn.
func (b *bulkheads) noteHeld(stmt statement, held bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, lock := range stmt.locks {
		if slots := b.slots[lockSlotsKey{lock, stmt.purpose, true}]; slots != nil {
			slots.held = held
		}
	}
}

func (p *permit) leave() {
	if p.stmt.share() != forRenewals {
		<-p.from.shared
	}
	<-p.from.shares[p.stmt.share()]
	p.from.wanting[p.stmt.share()].Add(-1)
	p.leaveSlots()
}

func (p *permit) leaveSlots() {
	for _, lock := range p.stmt.locks[:p.held] {
		p.from.leaveSlot(lockSlotsKey{lock, p.stmt.purpose, p.stmt.waiting})
	}
}

func (b *bulkheads) takeSlot(ctx context.Context, of lockSlotsKey) error {
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

func (b *bulkheads) leaveSlot(of lockSlotsKey) {
	b.mu.Lock()
	slots := b.slots[of]
	b.mu.Unlock()
	<-slots.taken
	b.forget(of, slots)
}

func (b *bulkheads) forget(of lockSlotsKey, slots *lockSlots) {
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
		return store.NotApplied(context.Cause(ctx))
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
		return store.NotApplied(context.Cause(ctx))
	case <-timer.C:
		return store.NotApplied(store.ErrNoConnection)
	}
}

// lockedTimeout bounds the look for the session that holds a lock.
const lockedTimeout = 500 * time.Millisecond

// lockedBySQL finds the sessions and the prepared transactions that have locked the fences of some names, or hold the
// tree locks (advisory locks 1718511205) of the names and of those above them. It finds a row lock by the transaction
// in the row, so it misses a lock that several transactions share. A lock of a prepared transaction has no pid, but the
// same virtual transaction as the lock on the transaction's id, by which the view of GIDs knows it.
const lockedBySQL = `
	with names (name, own) as (
		select n, true from unnest($1::text[]) n
		union select a, false from unnest($1::text[]) n, unnest(fence.ancestors(n)) a
	), found (what, pid, transaction) as (
		select 'the fence of ' || f.resource, l.pid, l.virtualtransaction
		from fence.fences f join pg_locks l on l.locktype = 'transactionid' and l.transactionid = f.xmax and l.granted
		where f.resource = any ($1)
		union
		select format('the advisory lock (%s, %s)', l.classid, hashtext(n.name)), l.pid, l.virtualtransaction
		from names n join pg_locks l on l.locktype = 'advisory' and l.granted and l.classid = 1718511205
			and l.objid::bigint = hashtext(n.name)::bigint & 4294967295 and l.objsubid = 2
			and l.database = (select d.oid from pg_database d where d.datname = current_database())
	)
	select string_agg(format('%s is held by %s', f.what,
		coalesce('pid ' || f.pid, 'the prepared transaction ' || quote_literal(p.gid))), ', ')
	from (select * from found order by what, pid limit 5) f
	left join pg_locks x on f.pid is null and x.locktype = 'transactionid' and x.virtualtransaction = f.transaction
	left join pg_prepared_xacts p on p.transaction = x.transactionid
	where f.pid is not null or p.gid is not null`

// lockedBy names the sessions and prepared transactions that hold the locks; "": none can be seen any more.
func (s *Store) lockedBy(ctx context.Context, locks []store.Name) string {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lockedTimeout)
	defer cancel()
	var by *string
	if err := s.pool.QueryRow(ctx, lockedBySQL, pgx.QueryExecModeCacheDescribe, locks).Scan(&by); err != nil || by == nil {
		return ""
	}
	return *by
}

// explainLocked adds to a lock timeout who holds the locks.
func (s *Store) explainLocked(ctx context.Context, timeout error, locks []store.Name) error {
	by := s.lockedBy(ctx, locks)
	var unavailable *store.UnavailableError
	if by == "" || !errors.As(timeout, &unavailable) {
		return timeout
	}
	return &store.UnavailableError{Outcome: unavailable.Outcome, Err: fmt.Errorf("%s: %w", by, unavailable.Err)}
}

// WarnLocked logs which session or prepared transaction keeps a lock from its waiters.
func (s *Store) WarnLocked(ctx context.Context, lock store.Name) {
	s.config.Logger.WarnContext(ctx, "waiters wait for an open transaction", "lock", lock,
		"holders", s.lockedBy(ctx, []store.Name{lock}))
}
