// Package guard runs users' own transactions under fence.guard. The packages pgxguard and sqlguard adapt it to their
// drivers.
//
// A transaction takes the lease's next number, so that its writes by HTTP and its transactions have one order.
//
//	Numbered ─► begin ─► fence.guard ─► fn ─► commit ──────► done
//	                         │                  │
//	                         │ rejected         │ no answer
//	                         ▼                  ▼
//	                   fence.try_guard,   fence.try_guard with the same number, rolled back:
//	                   committed: it is     token_reused: it was committed
//	                   recorded             admitted:     it was not, since the fence row is locked until a transaction ends
//
// The next number waits for the answer: once the fence has seen a greater one, it can't tell.
package guard

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/lockclient"
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

// DB begins transactions.
type DB interface {
	// Begin begins a transaction with the options of the caller.
	Begin(ctx context.Context) (Tx, error)
	// BeginPlain begins one under READ COMMITTED that may write.
	BeginPlain(ctx context.Context) (Tx, error)
}

// Guard admits a transaction to the resources under the lease's next number. No resource means that of the lease.
func Guard(ctx context.Context, tx Querier, lease *lockclient.Lease, resources []string) error {
	return lease.Numbered(ctx, func(number api.FencingToken) error {
		return numbered{lease, number, resourcesOf(lease, resources)}.guard(ctx, tx)
	})
}

// InTx runs fn in a transaction that is admitted to the resources, and commits it.
func InTx(
	ctx context.Context, db DB, lease *lockclient.Lease, resources []string, fn func(Tx) error,
) (err error) {
	resources = resourcesOf(lease, resources)
	for attempt := 1; ; attempt++ {
		err = lease.Numbered(ctx, func(number api.FencingToken) error {
			n := numbered{lease, number, resources}
			err := n.run(ctx, db, fn)
			if rejected(err) {
				n.report(ctx, db, lockclient.ProblemOf(err))
			}
			return err
		})
		if !repeatable(err) || attempt == attemptsMax || pause(ctx, attempt) != nil {
			return err
		}
	}
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

// run makes one try.
func (n numbered) run(ctx context.Context, db DB, fn func(Tx) error) error {
	tx, err := db.Begin(ctx)
	if err != nil {
		return err
	}
	defer rollback(ctx, tx)
	if err := n.guard(ctx, tx); err != nil {
		return err
	}
	if err := fn(tx); err != nil {
		return Error(err)
	}
	switch err := tx.Commit(ctx); {
	case err == nil:
		return nil
	case aborted(err):
		return Error(err) // a deferred trigger may have rejected it
	default:
		return n.settle(ctx, db, err)
	}
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
