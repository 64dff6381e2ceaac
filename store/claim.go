package store

import (
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// claim claims the places for a lock in the background; what asks for it meanwhile makes it claim once more. The caller has locked the line.
func (l *line) claim(lock Name, q *queue) {
	q.again = true
	if q.claiming {
		return
	}
	q.claiming = true
	go func() {
		for again, pause := l.claimInTurn(lock, q); again; again, pause = l.claimInTurn(lock, q) {
			time.Sleep(pause) // without a turn, which others need
		}
	}()
}

// claimInTurn lets other locks go first that are to be claimed already.
func (l *line) claimInTurn(lock Name, q *queue) (again bool, pause time.Duration) {
	l.claims <- struct{}{}
	defer func() { <-l.claims }()
	return l.claimOnce(lock, q)
}

// claimOnce reports whether to claim again, and after which pause.
func (l *line) claimOnce(lock Name, q *queue) (again bool, pause time.Duration) {
	l.mu.Lock()
	if !q.again || q.first(false) == 0 {
		q.claiming = false
		l.forget(lock, q)
		l.mu.Unlock()
		return false, 0
	}
	q.again = false
	lockWait := claimLockWait
	if q.pause > 0 {
		lockWait = claimLockWaitAgain
	}
	subtree := q.subtrees > 0
	l.mu.Unlock()

	ctx, cancel := context.WithTimeout(context.Background(), claimTimeout)
	defer cancel()
	claims, err := l.claimPlaces(ctx, lock, subtree, lockWait)

	l.mu.Lock()
	var orphans []Lease
	for _, claimed := range claims {
		q.again = q.again || claimed.more
		if claimed.left > 0 {
			l.arm(lock, q, claimed.left)
		}
		if claimed.told != nil && !q.tell(claimed) {
			orphans = append(orphans, claimed.told.lease)
		}
	}
	q.taken = nil
	switch {
	case err == nil:
		q.pause = 0
	case outcomeOf(err) == OutcomeNotApplied:
		q.again = true
		q.pause = min(max(2*q.pause, claimPauseMin), claimPauseMax)
	default:
		// A grant may have been made that nobody heard of: who asks again is told.
		q.askAgain()
		q.pause = claimPauseMax
	}
	pause = q.pause
	l.mu.Unlock()

	if err != nil {
		l.store.again(err)
	}
	for _, orphan := range orphans {
		_ = l.giveBack(ctx, orphan) // whoever waited has left
	}
	return true, pause
}

// claimed is a row of fence.grant_next.
type claimed struct {
	ticket  int64
	request string        // of what was granted, or of whose session has ended
	told    *told         // nil: it still waits
	left    time.Duration // how long the lease in the way runs
	more    bool          // no waiter: more can be claimed at once
}

// claimPlaces claims. It fails with ErrLocked after lockWait, and has changed nothing then.
func (l *line) claimPlaces(ctx context.Context, lock Name, subtree bool, lockWait time.Duration) ([]claimed, error) {
	// The timeout is an argument of the call, so that it is set before.
	const sql = `select c.outcome, c.ticket, coalesce((c.lease).request_id, ''), c.reason, c.left_ms, ` + leaseColumns + `
		from set_config('lock_timeout', $4, true) s (lock_timeout),
			lateral fence.grant_next($1, $2, case when s.lock_timeout <> '' then $3 end) c, lateral (select (c.lease).*) l`
	scope := Node
	if subtree {
		scope = Subtree
	}
	var claims []claimed
	args := []any{l.gateway, lock, scope, strconv.FormatInt(lockWait.Milliseconds(), 10)}
	err := l.store.queryAs(ctx, job{use: useClaims}, sql, args, func(rows pgx.Rows) error {
		var outcome string
		var reason pgtype.Text
		var leftMS pgtype.Int8
		var row leaseRow
		var got claimed
		if err := rows.Scan(append([]any{&outcome, &got.ticket, &got.request, &reason, &leftMS}, row.dest()...)...); err != nil {
			return err
		}
		switch outcome {
		case "granted":
			got.told = &told{lease: row.lease()}
		case "external":
			got.told = &told{err: ErrExternalAuthority}
		case "session_lost":
			got.told = &told{err: sessionLost(reason.String)}
		case "more":
			got.more = true
		case "held":
			got.left = max(milliseconds(leftMS), time.Millisecond)
		}
		claims = append(claims, got)
		return nil
	})
	return claims, err
}

// poll looks for places whose turn it may be, whatever notifications there were: of at most dueMax locks, the next ones each time.
func (l *line) poll(ctx context.Context) error {
	locks, tickets := l.nextDue()
	if len(locks) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, claimTimeout)
	defer cancel()
	return l.store.query(ctx, "select lock, here from fence.next_due($1, $2, $3)", []any{l.gateway, locks, tickets}, func(rows pgx.Rows) error {
		var lock Name
		var here bool
		if err := rows.Scan(&lock, &here); err != nil {
			return err
		}
		if here {
			l.wake(lock, 0)
		} else {
			l.lost(lock)
		}
		return nil
	})
}

// nextDue returns some locks, and the first ticket that this process has in the line of each. Whoever waits for a subtree may not hold up
// others: their first is looked at, too.
func (l *line) nextDue() (locks []Name, tickets []int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for lock, q := range l.queues {
		if q.first(false) > 0 && !q.claiming {
			locks = append(locks, lock)
		}
	}
	slices.Sort(locks)
	if l.polled >= len(locks) {
		l.polled = 0
	}
	locks = locks[l.polled:]
	locks = locks[:min(len(locks), dueMax)]
	l.polled += len(locks)
	for _, lock := range locks {
		tickets = append(tickets, l.queues[lock].first(false))
	}
	for _, lock := range locks[:len(tickets)] {
		if second := l.queues[lock].first(true); second > 0 && second != l.queues[lock].first(false) {
			locks, tickets = append(locks, lock), append(tickets, second)
		}
	}
	return locks, tickets
}

// lost has those whose tickets nextDue takes ask for their places again: one of them is in the line no more.
func (l *line) lost(lock Name) {
	l.mu.Lock()
	defer l.mu.Unlock()
	q := l.queues[lock]
	if q == nil {
		return
	}
	first, second := q.first(false), q.first(true)
	q.askAgainFor(first)
	if second != first {
		q.askAgainFor(second)
	}
}
