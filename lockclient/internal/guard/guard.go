// Package guard runs users' own transactions under fence.guard. The packages pgxguard and sqlguard adapt it to their
// drivers.
//
// A transaction takes the lease's next number, so that its writes by HTTP and its transactions have one order.
//
//	connection ─► number ─► begin ─► fence.guard ─► fn ─► commit ─► done
//	                                     │                  │
//	                                     │ rejected         │ no answer
//	                                     ▼                  ▼
//	                               fence.try_guard,   fence.outcome of the same number:
//	                               committed: it is     token_reused: it was committed
//	                               recorded             admitted: it was not, because it no longer locks the fence
//
// The next number waits for the answer: once the fence has seen a greater one, it can't tell.
//
// The connection comes before the number. In Guard the caller has one already, and waits for its number; if InTx waited
// for a connection while it has a number, both could wait for each other.
package guard

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/fencegate/fencegate/lockclient"
	"github.com/fencegate/fencegate/lockclient/api"
)

const (
	// attemptsMax bounds the tries of a transaction that fails with a serialization failure or a deadlock.
	attemptsMax = 10
	pauseBase   = 10 * time.Millisecond
	pauseMax    = time.Second
)

// Querier runs a statement that returns one row, and scans it.
type Querier interface {
	QueryRow(ctx context.Context, sql string, args []any, into ...any) error
}

// Tx is a transaction of a driver.
type Tx interface {
	Querier
	Commit(ctx context.Context) error
	Rollback(ctx context.Context) error
}

// Conn is a connection.
type Conn interface {
	// Begin begins a transaction with the options of the caller.
	Begin(ctx context.Context) (Tx, error)
	// BeginPlain begins one under READ COMMITTED.
	BeginPlain(ctx context.Context) (Tx, error)
	// Release gives it back to its pool. It may be called again.
	Release()
}

// Pool has connections.
type Pool interface {
	Take(ctx context.Context) (Conn, error)
}

// Guard admits a transaction to the resources under the lease's next number. No resource means that of the lease.
func Guard(ctx context.Context, tx Querier, lease *lockclient.Lease, resources []string) error {
	return lease.Numbered(ctx, func(number api.FencingToken) error {
		return numbered{lease, number, resourcesOf(lease, resources)}.guard(ctx, tx)
	})
}

// InTx runs fn in a transaction that is admitted to the resources, and commits it.
func InTx(
	ctx context.Context, pool Pool, lease *lockclient.Lease, resources []string, fn func(Tx) error,
) error {
	resources = resourcesOf(lease, resources)
	for attempt := 1; ; attempt++ {
		err := attemptTx(ctx, pool, lease, resources, fn)
		if !repeatable(err) || attempt == attemptsMax || pause(ctx, attempt) != nil {
			return explained(ctx, lease, err)
		}
	}
}

// explained adds the loss of the lease whose context has canceled the transaction, and has the error of a loss say who
// holds the lock now. The transaction has ended: it must not keep the fence locked meanwhile.
func explained(ctx context.Context, lease *lockclient.Lease, err error) error {
	lost := context.Cause(ctx)
	if errors.Is(err, context.Canceled) && errors.Is(lost, lockclient.ErrNotHolder) &&
		!errors.Is(err, lockclient.ErrNotHolder) {
		err = fmt.Errorf("%w: %w", lost, err)
	}
	if errors.Is(err, lockclient.ErrNotHolder) && lease.Err() != nil {
		_ = lease.Renew(ctx) // of a lost lease, it asks for the holder, and sends no renewal
	}
	return err
}

func attemptTx(
	ctx context.Context, pool Pool, lease *lockclient.Lease, resources []string, fn func(Tx) error,
) error {
	conn, err := pool.Take(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	return lease.Numbered(ctx, func(number api.FencingToken) error {
		n := numbered{lease, number, resources}
		lost, err := n.run(ctx, conn, fn)
		if lost {
			conn.Release()
			return n.settle(ctx, pool, err)
		}
		return err
	})
}

// resourcesOf returns the resources in the order in which all transactions lock their fences.
func resourcesOf(lease *lockclient.Lease, resources []string) []string {
	if len(resources) == 0 {
		return []string{lease.Name()}
	}
	return slices.Compact(slices.Sorted(slices.Values(resources)))
}

// numbered is a transaction of a lease, or its repetition after a lost answer.
type numbered struct {
	lease     *lockclient.Lease
	number    api.FencingToken
	resources []string
}

func (n numbered) guard(ctx context.Context, tx Querier) error {
	for _, resource := range n.resources {
		var admitted bool // without a digest it is true
		err := tx.QueryRow(ctx, "select fence.guard($1, $2, $3, $4::uuid)",
			[]any{resource, n.number.Token, *n.number.Sequence, n.lease.ID()}, &admitted)
		if err != nil {
			return Error(err)
		}
	}
	return nil
}

// run runs the transaction. lost says that COMMIT got no answer; the error is that of the connection then.
func (n numbered) run(ctx context.Context, conn Conn, fn func(Tx) error) (lost bool, err error) {
	tx, err := conn.Begin(ctx)
	if err != nil {
		return false, err
	}
	defer rollback(ctx, tx)
	if err := n.guard(ctx, tx); err != nil {
		return false, err
	}
	if err := fn(tx); err != nil {
		return false, Error(err)
	}
	err = tx.Commit(ctx)
	if err != nil && !aborted(err) {
		return true, err
	}
	return false, Error(err) // a deferred trigger may have rejected it
}

// rollback does nothing after a commit. It does not depend on ctx, because other holders wait for its fence.
func rollback(ctx context.Context, tx Tx) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), extraTime)
	defer cancel()
	_ = tx.Rollback(ctx) // if it fails, the driver closes the connection, which rolls back, too
}

// pause waits before the next try.
func pause(ctx context.Context, attempt int) error {
	longest := min(pauseBase<<min(attempt, 10), pauseMax)
	timer := time.NewTimer(rand.N(longest)) //nolint:gosec // jitter needs no secrecy
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
