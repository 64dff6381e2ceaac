package drive

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencegate/fencegate/internal/test/spec"
	"github.com/fencegate/fencegate/store"
)

// Gateway is an engine.
type Gateway interface {
	spec.Service
	GatewayID() uuid.UUID
}

// Queue performs operations on gateways of one database, by which acquires wait. An operation is over when all that
// follows from it has happened: the waiters whose turn it is have their locks, those whose sessions ended have their
// answers, and the waiters in the database are those of the contract, in their order.
type Queue struct {
	SQL      *pgxpool.Pool // past the gateways, to do what time does
	Sweep    func(context.Context) error
	Gateways []Gateway
	// Limit bounds the wait for what must happen. It takes milliseconds.
	Limit time.Duration

	mu      sync.Mutex
	callers map[request][]caller
}

// request names an acquire that waits.
type request struct {
	name store.Name
	id   string
}

func requestOf(op spec.Op) request { return request{op.Name, op.Request} }

// caller waits for the answer to an acquire. Several may wait for the same one.
type caller struct {
	op    spec.Op
	leave context.CancelFunc
	done  chan struct{} // is closed once it is answered
	got   *reply
}

type reply struct {
	spec.Answer
	spec.Choice
}

// await polls until a condition holds.
func (q *Queue) await(ctx context.Context, what string, holds func() (bool, error)) error {
	for until, pause := time.Now().Add(q.Limit), 200*time.Microsecond; ; pause = min(2*pause, 10*time.Millisecond) {
		switch done, err := holds(); {
		case done || err != nil:
			return err
		case time.Now().After(until) || ctx.Err() != nil:
			return fmt.Errorf("waited in vain for %s", what)
		}
		time.Sleep(pause)
	}
}

// Perform performs an operation through the gateway that it is for.
func (q *Queue) Perform(ctx context.Context, before spec.State, op spec.Op) (spec.Answer, spec.Choice, error) {
	switch {
	case op.Kind == spec.Leave:
		return spec.Answer{Code: spec.CodeDone}, spec.Choice{}, q.leave(requestOf(op), func(c caller) bool { return c.op.Owner == op.Owner })
	case op.Kind == spec.Acquire && op.Wait > 0:
		return q.acquire(ctx, before, op)
	}
	return Store{Service: q.Gateways[op.At], SQL: q.SQL, Sweep: q.Sweep}.Perform(ctx, before, op)
}

// acquire returns when the acquire is answered, or in the queue if that is where it must be.
func (q *Queue) acquire(ctx context.Context, before spec.State, op spec.Op) (spec.Answer, spec.Choice, error) {
	_, want := before.Step(op, spec.Choice{})
	on := q.Gateways[op.At]
	_, was, err := q.row(ctx, op)
	if err != nil {
		return spec.Answer{}, spec.Choice{}, err
	}
	waiting, leave := context.WithCancel(context.WithoutCancel(ctx))
	c := caller{op, leave, make(chan struct{}), new(reply)}
	go func() {
		c.got.Answer, c.got.Choice = spec.Perform(waiting, on, op)
		close(c.done)
	}()
	answered := false
	err = q.await(ctx, want.String(), func() (bool, error) {
		select {
		case <-c.done:
			answered = true
			return true, nil
		default:
		}
		gateway, version, err := q.row(ctx, op)
		return want.Code == spec.CodeQueued && gateway == on.GatewayID() && version != was, err
	})
	switch {
	case err != nil:
		leave()
		return spec.Answer{}, spec.Choice{}, err
	case answered:
		leave()
		return c.got.Answer, c.got.Choice, nil
	}
	// The caller before it has lost its connection if it was another gateway's. Else they may both wait.
	alone := len(before.Queue())%2 == 1
	err = q.leave(requestOf(op), func(earlier caller) bool { return alone || earlier.op.At != op.At })
	if q.callers == nil {
		q.callers = map[request][]caller{}
	}
	q.callers[requestOf(op)] = append(q.callers[requestOf(op)], c)
	return spec.Answer{Code: spec.CodeQueued}, spec.Choice{}, err
}

// row is the gateway of a waiter's row, and the version of the row; nothing if there is none.
func (q *Queue) row(ctx context.Context, op spec.Op) (gateway uuid.UUID, version string, err error) {
	const sql = "select gateway_id, xmin::text from fence.waiters where lock = $1 and request_id = $2"
	err = q.SQL.QueryRow(ctx, sql, op.Name, op.Request).Scan(&gateway, &version)
	if errors.Is(err, pgx.ErrNoRows) {
		err = nil
	}
	return gateway, version, err
}

// leave has some of the callers of a request leave, at the same moment.
func (q *Queue) leave(of request, which func(caller) bool) error {
	q.mu.Lock()
	var leaving, stay []caller
	for _, c := range q.callers[of] {
		if which(c) {
			c.leave()
			leaving = append(leaving, c)
		} else {
			stay = append(stay, c)
		}
	}
	if delete(q.callers, of); len(stay) > 0 {
		q.callers[of] = stay
	}
	q.mu.Unlock()
	for _, c := range leaving {
		if err := q.expect(c, spec.Answer{Code: spec.CodeLeft}); err != nil {
			return err
		}
	}
	return nil
}

func (q *Queue) answer(c caller) (reply, error) {
	select {
	case <-c.done:
		c.leave()
		return *c.got, nil
	case <-time.After(q.Limit):
		return reply{}, fmt.Errorf("%s still waits", c.op)
	}
}

func (q *Queue) expect(c caller, want spec.Answer) error {
	got, err := q.answer(c)
	if err == nil && !got.Same(want) {
		err = fmt.Errorf("the waiter %s\nreturned %s\nwant     %s", c.op, got.Answer, want)
	}
	return err
}

// Settle waits for what follows from an operation by itself.
func (q *Queue) Settle(ctx context.Context, after spec.State, op spec.Op) (spec.State, error) {
	if len(q.callers) == 0 {
		return after, nil
	}
	state, err := q.notice(ctx, after, op)
	if err == nil {
		state, err = q.serve(state)
	}
	if err == nil {
		err = q.dismiss(state)
	}
	if err == nil {
		err = q.compare(ctx, state)
	}
	if err != nil {
		return after, err
	}
	return state, nil
}

// notice has the end of a lease or session noticed: by a sweep, or as by the timer of an engine, which is set to the time
// that the lease had before.
func (q *Queue) notice(ctx context.Context, state spec.State, op spec.Op) (spec.State, error) {
	sweeps := op.Kind == spec.ExpireSession || op.Kind == spec.Expire && len(state.Queue())%2 == 1
	switch {
	case sweeps:
		swept, _ := state.Step(spec.Op{Kind: spec.Sweep}, spec.Choice{})
		return swept, q.Sweep(ctx)
	case op.Kind == spec.Expire:
		_, err := q.SQL.Exec(ctx, "select fence.wake(l.lock, l.scope, 0) from fence.leases l "+
			"where l.lock = $1 and l.fencing_token = $2", op.Name, op.Token)
		return state, err
	}
	return state, nil
}

// serve receives the leases of the waiters whose turn it is. They are granted in any order, as none is in the way of
// another.
func (q *Queue) serve(state spec.State) (spec.State, error) {
	type served struct {
		turn spec.Op
		reply
	}
	var all []served
	for _, turn := range state.Turns() {
		first := reply{}
		for i, c := range q.callers[requestOf(turn)] {
			got, err := q.answer(c)
			if i == 0 {
				first = got
			}
			if err == nil && got != first {
				err = fmt.Errorf("the waiters %s returned %s and %s", turn, first.Answer, got.Answer)
			}
			if err != nil {
				return state, err
			}
		}
		delete(q.callers, requestOf(turn))
		all = append(all, served{turn, first})
	}
	slices.SortFunc(all, func(a, b served) int { return cmp.Compare(a.Choice.Token, b.Choice.Token) })
	for _, one := range all {
		op := one.turn
		op.Kind = spec.Serve
		next, want := state.Step(op, one.Choice)
		if !one.Answer.Same(want) {
			return state, fmt.Errorf("the waiter %s\nreturned %s\nwant     %s", one.turn, one.Answer, want)
		}
		state = next
	}
	return state, nil
}

// dismiss receives the answers to the waiters that have left the queue by themselves: those that they would get if they
// came now.
func (q *Queue) dismiss(state spec.State) error {
	for of, callers := range q.callers {
		if slices.ContainsFunc(state.Queue(), func(waits spec.Op) bool { return requestOf(waits) == of }) {
			continue
		}
		for _, c := range callers {
			_, want := state.Step(c.op, spec.Choice{})
			if err := q.expect(c, want); err != nil {
				return err
			}
		}
		delete(q.callers, of)
	}
	return nil
}

// compare waits until the rows are those of the queue. Nobody else may be answered.
func (q *Queue) compare(ctx context.Context, state spec.State) error {
	want := []string{}
	for _, waits := range state.Queue() {
		want = append(want, fmt.Sprint(waits.Name, " ", waits.Request))
	}
	var rows []string
	err := q.await(ctx, "the queue", func() (bool, error) {
		for _, callers := range q.callers {
			for _, c := range callers {
				select {
				case <-c.done:
					return false, fmt.Errorf("the waiter %s\nreturned %s\nwhile it is not its turn", c.op, c.got.Answer)
				default:
				}
			}
		}
		const sql = "select coalesce(array_agg(w.lock || ' ' || w.request_id order by w.ticket), '{}') from fence.waiters w"
		err := q.SQL.QueryRow(ctx, sql).Scan(&rows)
		return slices.Equal(rows, want), err
	})
	if err != nil && !slices.Equal(rows, want) {
		err = fmt.Errorf("%w: in the queue are\n%q, want\n%q", err, rows, want)
	}
	return err
}

// Forget has all callers leave, and forgets the leases and subtrees: an owner would have thousands.
func (q *Queue) Forget(ctx context.Context) error {
	for _, callers := range q.callers {
		for _, c := range callers {
			c.leave()
		}
		for _, c := range callers {
			if _, err := q.answer(c); err != nil {
				return err
			}
		}
	}
	clear(q.callers)
	var err error
	gone := q.await(ctx, "the end of the grants", func() (bool, error) { // one of which it may meet in a deadlock
		_, err = q.SQL.Exec(ctx, "delete from fence.policies; delete from fence.waiters; delete from fence.leases; "+
			"update fence.fences set subtree_token = null where subtree_token is not null")
		return err == nil, nil
	})
	return errors.Join(gone, err)
}
