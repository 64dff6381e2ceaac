package waitqueue

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
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
	Enqueue(ctx context.Context, request store.AcquireRequest, gateway uuid.UUID, to store.ToQueue) (store.Acquired, error)
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
	locks       map[lockKey]*lockQueue
	count       int // waiters
	debts       []debt
	heartbeatAt time.Time         // when the last heartbeat was sent that arrived
	polls       int               // rounds of polls in which all locks have their turn
	unchecked   map[*waiter]check // waits that are to be checked for cycles
	checking    bool
}

// New returns a Queue for the callers of a gateway. It waits to be Run.
func New(on Database, gateway uuid.UUID, config Config) *Queue {
	return &Queue{
		db: on, gateway: gateway, config: config,
		grants: make(chan struct{}, grantsMax), locks: map[lockKey]*lockQueue{}, polls: 1,
		unchecked: map[*waiter]check{},
	}
}

// Run sends heartbeats as long as a caller waits here, polls, and repeats what could not be done while the database was
// unreachable, until ctx ends. It passes errors to onError and goes on. Slow work does not delay the heartbeats.
func (q *Queue) Run(ctx context.Context, onError func(error)) {
	var running sync.WaitGroup
	every := func(interval time.Duration, work func(context.Context) error) {
		running.Go(func() { timing.Every(ctx, interval, onError, func() error { return work(ctx) }) })
	}
	every(q.config.HeartbeatInterval, func(ctx context.Context) error {
		if q.Len() == 0 {
			return nil
		}
		return q.heartbeat(ctx)
	})
	every(q.config.HeartbeatInterval, q.payDebts)
	every(q.config.PollInterval, q.poll)
	running.Wait()
}

// Len returns how many callers wait here.
func (q *Queue) Len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.count
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
	if lq := q.locks[lockKey(bytes)]; lq != nil {
		q.wake(lq, time.Duration(ms)*time.Millisecond)
	}
}

// RequeueAll makes every waiter send its acquire again. It keeps its ticket, if that is still in the database: after a
// crash of the database it may not be.
func (q *Queue) RequeueAll() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, lq := range q.locks {
		lq.loseAll()
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
	_, err, _ := q.heartbeats.Do("", func() (any, error) {
		q.mu.Lock()
		recent := time.Since(q.heartbeatAt) < q.config.DeadAfter/2
		q.mu.Unlock()
		if recent {
			return nil, nil
		}
		return nil, q.heartbeat(ctx)
	})
	return err
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
