package waitqueue

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/internal/timing"
)

const (
	// claimsMax bounds the claims under way at once, so that they leave connections to others.
	claimsMax = 4
	// dueMax is how many lines one poll looks at.
	dueMax = 500
	// claimTimeout bounds one statement of the line's own.
	claimTimeout = 15 * time.Second
	// claimLockWait is how long a claim waits for a fence that another session has locked, and claimLockWaitAgain how long the next one does
	// after such a claim has failed. There are few turns for claims, and other queues wait for them.
	claimLockWait, claimLockWaitAgain = 100 * time.Millisecond, 20 * time.Millisecond
	// claimPauseMin and claimPauseMax are the pauses of a queue after claims that failed, each twice the one before.
	claimPauseMin, claimPauseMax = 50 * time.Millisecond, time.Second
)

// Queue is what this process has in the lines of the database: the places of its own callers. The order of the line, and whose turn it is,
// is the database's to say (fence.grant_next). A place is claimed when a notification or the clock says that it may be its turn.
type Queue struct {
	store   *store.Store
	gateway uuid.UUID
	config  Config
	claims  chan struct{} // holds a token for each claim under way

	mu        sync.Mutex
	queues    map[store.Name]*queue
	left      []place   // that were given up, but perhaps not in the database yet
	orphans   []orphan  // leases that nobody has heard of, and that could not be given back
	beaten    time.Time // when the database last heard of this process
	polled    int       // where the last poll ended in the order of names
	deadlocks deadlocks
}

// waiter is one caller, from its first question to its answer.
type waiter struct {
	request string // its request_id; several callers may have the same, and so one place
	subtree bool
	ticket  int64     // 0: it asks for its place, for the first time or again; see queue.setTicket
	checked int64     // the ticket that was last looked at for a cycle
	leaving bool      // its time is over
	gone    bool      // nobody is there any more who could hold a lease
	told    chan told // of capacity 1
}

// told is what became of a waiter.
type told struct {
	lease store.Lease
	err   error
	// takers counts who was told of the lease and has not gone away. It is guarded by line.mu.
	takers *int
	// again: the place may be gone; ask for it again.
	again bool
}

// New returns a Queue that waits to be Run.
func New(on *store.Store, gateway uuid.UUID, config Config) *Queue {
	return &Queue{
		store: on, gateway: gateway, config: config, claims: make(chan struct{}, claimsMax), queues: map[store.Name]*queue{},
	}
}

// tell hands a waiter what became of it. A later word replaces an earlier one that was not heard, but never a lease.
func (w *waiter) tell(news told) {
	select {
	case w.told <- news:
	default:
		if !news.again {
			select {
			case <-w.told:
			default:
			}
			w.told <- news
		}
	}
}

// join announces a caller: what is granted to its request is its own from now on, until it has quit.
func (l *Queue) join(lock store.Name, w *waiter) {
	l.mu.Lock()
	defer l.mu.Unlock()
	q := l.queues[lock]
	if q == nil {
		q = newQueue()
		l.queues[lock] = q
	}
	q.add(w)
	l.left = slices.DeleteFunc(l.left, func(p place) bool { return p.lock == lock && p.request == w.request })
}

// quit takes a caller out, who has been told of the lease, if any.
func (l *Queue) quit(lock store.Name, w *waiter, lease store.Lease) {
	l.mu.Lock()
	defer l.mu.Unlock()
	q := l.queues[lock]
	if q.claiming && lease.Token > 0 {
		q.taken = append(q.taken, lease.ID)
	}
	q.remove(w)
	l.forget(lock, q)
}

// ask announces that a caller asks for its place, so that no notification is missed in between.
func (l *Queue) ask(lock store.Name, w *waiter) {
	l.mu.Lock()
	defer l.mu.Unlock()
	q := l.queues[lock]
	q.setTicket(w, 0)
	q.asking++
}

// asked follows ask: the caller has a place, or 0.
func (l *Queue) asked(lock store.Name, w *waiter, ticket int64, left time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	q := l.queues[lock]
	q.asking--
	q.setTicket(w, ticket)
	if ticket > 0 && ticket != w.checked {
		w.checked = ticket
		l.checkDeadlock(ticket, deadlockCheck{lock: lock})
	}
	if left > 0 {
		l.arm(lock, q, left)
	}
	if q.missed && q.first(false) > 0 {
		l.claim(lock, q)
	}
	if q.asking == 0 {
		q.missed = false
	}
}

// forget drops a queue that nobody is in. The caller has locked the line.
func (l *Queue) forget(lock store.Name, q *queue) {
	if len(q.waiters) > 0 || q.claiming {
		return
	}
	if q.timer != nil {
		q.timer.Stop()
	}
	if l.queues[lock] == q {
		delete(l.queues, lock)
	}
}

// Len returns how many callers wait here.
func (l *Queue) Len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, q := range l.queues {
		n += len(q.waiters)
	}
	return n
}

// Wake claims the places for a lock, now or when the lease in the way will have run out.
func (l *Queue) Wake(lock store.Name, in time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	q := l.queues[lock]
	switch {
	case q == nil:
	case in > 0:
		l.arm(lock, q, in)
	default:
		l.wakeNow(lock, q)
	}
}

func (l *Queue) wakeNow(lock store.Name, q *queue) {
	q.missed = q.asking > 0
	if q.first(false) > 0 {
		l.claim(lock, q)
	}
}

// arm sets the time of the next claim, unless that is earlier already: the lease of which it was told may not be the one in the way. The
// caller has locked the line.
func (l *Queue) arm(lock store.Name, q *queue, in time.Duration) {
	due := time.Now().Add(in)
	if q.timer != nil {
		if !due.Before(q.due) {
			return
		}
		q.timer.Stop()
	}
	q.due = due
	q.timer = time.AfterFunc(in, func() { l.timeUp(lock, q, due) })
}

func (l *Queue) timeUp(lock store.Name, q *queue, due time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.queues[lock] == q && q.due.Equal(due) {
		q.timer = nil
		l.wakeNow(lock, q)
	}
}

// AskAgain has everybody ask for his place again: it is the same, if it is still there. After a crash of the database it may not be.
func (l *Queue) AskAgain() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, q := range l.queues {
		q.missed = q.asking > 0
		q.askAgain()
	}
}

// Run keeps this process alive in the database as long as anybody waits, and polls, until ctx ends. What takes long does not delay the heartbeat.
func (l *Queue) Run(ctx context.Context, onError func(error)) {
	var running sync.WaitGroup
	running.Go(func() {
		timing.Every(ctx, l.config.Beat, onError, func() error {
			if l.Len() == 0 {
				return nil
			}
			return l.beat(ctx)
		})
	})
	running.Go(func() { timing.Every(ctx, l.config.Beat, onError, func() error { return l.leaveLate(ctx) }) })
	running.Go(func() { timing.Every(ctx, l.config.Poll, onError, func() error { return l.poll(ctx) }) })
	running.Wait()
}

// beat tells the database that this process lives.
func (l *Queue) beat(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, l.config.Missing)
	defer cancel()
	sent := time.Now()
	lapsed, err := l.store.Heartbeat(ctx, l.gateway, l.config.Missing)
	if err != nil {
		return err
	}
	l.mu.Lock()
	l.beaten = sent
	l.mu.Unlock()
	if lapsed {
		l.checkAllForDeadlocks()
	}
	return nil
}

// known makes sure that the database has heard of this process lately: a place of one that it takes for dead does not count.
func (l *Queue) known(ctx context.Context) error {
	l.mu.Lock()
	fresh := time.Since(l.beaten) < l.config.Missing/2
	l.mu.Unlock()
	if fresh {
		return nil
	}
	return l.beat(ctx)
}
