package waitqueue

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/singleflight"

	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/internal/timing"
)

// statementTimeout bounds one statement of the Queue.
const statementTimeout = 15 * time.Second

// Database decides whose turn it is; *postgres.Store is one.
type Database interface {
	Enqueue(
		ctx context.Context, request store.AcquireRequest, gateway uuid.UUID, to store.ToQueue,
	) (store.Acquired, error)
	GrantNext(
		ctx context.Context, gateway uuid.UUID, lock store.Name, scope store.Scope, lockWait time.Duration,
	) ([]store.QueueResult, error)
	NextDue(
		ctx context.Context, gateway uuid.UUID, locks []store.Name, tickets []int64, due func(lock store.Name, here bool),
	) error
	LeaveQueue(ctx context.Context, gateway uuid.UUID, lock store.Name, requestID string) error
	GiveBack(ctx context.Context, lease store.Lease) error
	ReleaseLease(ctx context.Context, ref store.LeaseRef) (store.Released, error)
	HandOver(
		ctx context.Context, ref store.LeaseRef, gateway uuid.UUID,
	) (store.Released, []store.QueueResult, error)
	Heartbeat(ctx context.Context, gateway uuid.UUID, missing time.Duration) (lapsed bool, err error)

	FindDeadlocks(ctx context.Context, tickets []int64, begun bool) ([]int64, error)
	BreakDeadlock(
		ctx context.Context, gateway uuid.UUID, ticket int64, insist bool,
	) (store.DeadlockOutcome, *store.DeadlockError, error)

	// CountRetry counts that something is tried again after a failure.
	CountRetry(err error)

	// WarnLocked logs what keeps a lock from its waiters.
	WarnLocked(ctx context.Context, lock store.Name)
}

// Queue has the callers of this process that wait for locks. The database decides whose turn it is; the Queue calls
// GrantNext when a notification or the clock says that it may be the turn of one of them.
type Queue struct {
	db      Database
	gateway uuid.UUID
	config  Config
	grants  chan struct{} // holds a token for each grant in flight

	heartbeats singleflight.Group // those of callers

	mu          sync.Mutex
	locks       map[store.Name]*lockQueue
	keys        map[lockKey]store.Name // those of locks
	leaving     []departure            // waiters that left, but whose rows may still be in the database
	orphans     []orphan               // leases that no caller took, and that could not be given back
	heartbeatAt time.Time              // when the last heartbeat was sent that arrived
	polled      int                    // where the last poll ended, in the order of the names of locks
	deadlocks   deadlocks
}

// New returns a Queue for the callers of a gateway. It waits to be Run.
func New(on Database, gateway uuid.UUID, config Config) *Queue {
	return &Queue{
		db: on, gateway: gateway, config: config,
		grants: make(chan struct{}, grantsMax), locks: map[store.Name]*lockQueue{}, keys: map[lockKey]store.Name{},
	}
}

// Run sends heartbeats as long as a caller waits here, polls, and repeats what could not be done while the database was
// unreachable, until ctx ends. It passes errors to onError and goes on. Slow work does not delay the heartbeats.
func (q *Queue) Run(ctx context.Context, onError func(error)) {
	var running sync.WaitGroup
	running.Go(func() {
		timing.Every(ctx, q.config.HeartbeatInterval, onError, func() error {
			if q.Len() == 0 {
				return nil
			}
			return q.heartbeat(ctx)
		})
	})
	running.Go(func() {
		timing.Every(ctx, q.config.HeartbeatInterval, onError, func() error { return q.finishLeaving(ctx) })
	})
	running.Go(func() { timing.Every(ctx, q.config.PollInterval, onError, func() error { return q.poll(ctx) }) })
	running.Wait()
}

// Len returns how many callers wait here.
func (q *Queue) Len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := 0
	for _, lq := range q.locks {
		n += lq.waiters
	}
	return n
}

// lockKey stands for a lock in a notification, which every role of the database can hear: see fence.wake_gateway.
type lockKey [16]byte

func (q *Queue) keyOf(lock store.Name) (key lockKey) {
	hash := sha256.Sum256(append(q.gateway[:], lock...))
	copy(key[:], hash[:])
	return key
}

// Channel is where the database notifies the Queue, as fence.gateway_channel makes it.
func (q *Queue) Channel() string {
	key := q.keyOf("")
	return "fence_" + hex.EncodeToString(key[:])
}

// Notified handles a notification on the Channel.
func (q *Queue) Notified(payload string) {
	text, hash, _ := strings.Cut(payload, " ")
	ms, err := strconv.ParseInt(text, 10, 64)
	bytes, malformed := hex.DecodeString(hash)
	if err != nil || malformed != nil || len(bytes) != len(lockKey{}) {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.wake(q.keys[lockKey(bytes)], time.Duration(ms)*time.Millisecond)
}

// Wake starts a grant of the lock to its waiters here.
func (q *Queue) Wake(lock store.Name) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.wake(lock, 0)
}

// wake starts a grant now, or when the lease in the way will have expired. The caller has locked the Queue.
func (q *Queue) wake(lock store.Name, in time.Duration) {
	lq := q.locks[lock]
	switch {
	case lq == nil:
	case in > 0:
		q.arm(lock, lq, in)
	default:
		q.wakeNow(lock, lq)
	}
}

// RequeueAll makes every waiter send its acquire again. It keeps its ticket, if that is still in the database: after a
// crash of the database it may not be.
func (q *Queue) RequeueAll() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, lq := range q.locks {
		lq.missed = lq.sending > 0
		lq.requeueAll()
	}
}

// join adds a caller. Grants to its request are its own from now on, until quit.
func (q *Queue) join(w *waiter) {
	q.mu.Lock()
	defer q.mu.Unlock()
	lock, requestID := w.request.Lock, w.request.RequestID
	lq := q.locks[lock]
	if lq == nil {
		lq = newLockQueue()
		q.locks[lock], q.keys[q.keyOf(lock)] = lq, lock
	}
	lq.add(w)
	q.leaving = slices.DeleteFunc(q.leaving, func(d departure) bool { return d.lock == lock && d.requestID == requestID })
}

// quit removes a caller. lease is the one that it got, if any.
func (q *Queue) quit(w *waiter, lease *store.Lease) {
	q.mu.Lock()
	defer q.mu.Unlock()
	lq := q.locks[w.request.Lock]
	if lq.granting && lease.Token > 0 {
		lq.taken = append(lq.taken, lease.ID)
	}
	lq.remove(w)
	q.dropIfEmpty(w.request.Lock, lq)
}

// dropIfEmpty forgets a lock for which no caller waits. The caller has locked the Queue.
func (q *Queue) dropIfEmpty(lock store.Name, lq *lockQueue) {
	if lq.waiters > 0 || lq.granting {
		return
	}
	if lq.timer != nil {
		lq.timer.Stop()
	}
	if q.locks[lock] == lq {
		delete(q.locks, lock)
		delete(q.keys, q.keyOf(lock))
	}
}

func (q *Queue) wakeNow(lock store.Name, lq *lockQueue) {
	lq.missed = lq.sending > 0
	if lq.first(false) > 0 {
		q.grantNext(lock, lq)
	}
}

// arm sets the timer of the next grant, unless it is set to an earlier time: the lease that was reported may not be the
// one in the way. The caller has locked the Queue.
func (q *Queue) arm(lock store.Name, lq *lockQueue, in time.Duration) {
	due := time.Now().Add(in)
	if lq.timer != nil {
		if !due.Before(lq.due) {
			return
		}
		lq.timer.Stop()
	}
	lq.due = due
	lq.timer = time.AfterFunc(in, func() { q.timeUp(lock, lq, due) })
}

func (q *Queue) timeUp(lock store.Name, lq *lockQueue, due time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.locks[lock] == lq && lq.due.Equal(due) {
		lq.timer = nil
		q.wakeNow(lock, lq)
	}
}

func (q *Queue) heartbeat(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, q.config.DeadAfter)
	defer cancel()
	sent := time.Now()
	lapsed, err := q.db.Heartbeat(ctx, q.gateway, q.config.DeadAfter)
	if err != nil {
		return err
	}
	q.mu.Lock()
	q.heartbeatAt = sent
	q.mu.Unlock()
	if lapsed {
		q.checkAllForDeadlocks()
	}
	return nil
}

// ensureHeartbeat sends a heartbeat if the last one is old. The database skips waiters of gateways without a recent
// heartbeat. Of callers that come at the same time, one sends it for all: thousands would wait for each other at the one
// row of the gateway, and fail.
func (q *Queue) ensureHeartbeat(ctx context.Context) error {
	if q.heartbeatIsRecent() {
		return nil
	}
	_, err, _ := q.heartbeats.Do("", func() (any, error) {
		if q.heartbeatIsRecent() {
			return nil, nil
		}
		return nil, q.heartbeat(ctx)
	})
	return err
}

func (q *Queue) heartbeatIsRecent() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return time.Since(q.heartbeatAt) < q.config.DeadAfter/2
}

// Config says how a Queue keeps its waiters alive and how often it looks for their turn.
type Config struct {
	// HeartbeatInterval is the time between two heartbeats, while a caller waits here.
	HeartbeatInterval time.Duration
	// DeadAfter is the time without a heartbeat after which other gateways skip the waiters of this process.
	DeadAfter time.Duration
	// PollInterval is the time between two looks for waiters whose notification was lost.
	PollInterval time.Duration
}
