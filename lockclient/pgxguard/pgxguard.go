// Package pgxguard fences transactions of pgx by the lease of a [lockclient.Lease]: fence.guard admits them, in the
// database that has fencegate's schema. For database/sql and what is built on it, see sqlguard.
//
//	lease, err := client.Acquire(ctx, "accounts/42")
//	if err != nil {
//		return err
//	}
//	defer lease.ReleaseOnce()
//
//	err = pgxguard.InTx(ctx, pool, lease, func(tx pgx.Tx) error {
//		_, err := tx.Exec(ctx, "update accounts set balance = balance - 10 where id = 42")
//		return err
//	})
//
// The lease numbers its transactions and its writes by HTTP with one counter. The fence stays locked until the
// transaction ends. Meanwhile no newer lease is granted, and no other write to the resource is decided. Keep transactions
// short, and bound them with idle_in_transaction_session_timeout.
//
// Read what the writes depend on after the guard, in the same transaction.
package pgxguard

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencegate/fencegate/lockclient"
	"github.com/fencegate/fencegate/lockclient/internal/guard"
)

// Option configures Guard or InTx.
type Option func(*config)

type config struct {
	resources []string
	begin     pgx.TxOptions
}

// OnResource guards a resource below the lock's own, under a Subtree lease. Given more than once, it guards all of these
// resources, under one number.
func OnResource(resource string) Option {
	return func(c *config) { c.resources = append(c.resources, resource) }
}

// WithTxOptions sets how InTx begins its transaction. Guard ignores it.
func WithTxOptions(options pgx.TxOptions) Option {
	return func(c *config) { c.begin = options }
}

func newConfig(opts []Option) config {
	var c config
	for _, opt := range opts {
		opt(&c)
	}
	return c
}

// Guard admits tx to write to the lease's resource, under the lease's next number. Call it before anything else in tx.
// Afterwards pass errors of statements and of Commit through [Error].
//
// Guard waits for the lease's earlier writes until they are answered. Until tx ends, the lease's later writes to the
// same resource wait for it in the database, so don't wait for one of them before. To guard several resources of a
// Subtree lease, name them all in one call. To guard several leases, call Guard for each, in the same order everywhere.
//
// It returns an error that matches lockclient.ErrNotHolder if the caller is not the holder: roll back, and stop. Other
// errors are those of pgx. In particular SQLSTATE 40001, which asks for the transaction to be run again, in a new
// transaction with another Guard.
func Guard(ctx context.Context, tx pgx.Tx, lease *lockclient.Lease, opts ...Option) error {
	return guard.Guard(ctx, transaction{tx}, lease, newConfig(opts).resources)
}

// Error turns an error of a statement, or of Commit, in a guarded transaction into the SDK's: a *[lockclient.Error], if
// the trigger of a protected table or fence.guard has rejected it. It matches lockclient.ErrTokenRequired if a row was
// written whose resource was not guarded. The error's Cause is err. Other errors, and nil, are returned unchanged.
func Error(err error) error { return guard.Error(err) }

// InTx begins a transaction, guards it, calls fn and commits. If fn returns an error or panics, it rolls back. After a
// serialization failure or a deadlock (SQLSTATE 40001, 40P01) it begins again, under the next number, up to ten times.
// So fn may run more than once: it must have no effect outside of tx. It must not commit or roll back tx.
//
// fn must not write under the same lease by other means, nor call Guard with it: the lease's other writes wait until
// InTx returns. It may call Guard with other leases. Concurrent calls with one lease run one after another, and each
// holds a connection while it waits.
//
// If the connection is lost during COMMIT, InTx asks the fence, on another connection, whether the transaction was
// committed. That takes up to 30 seconds while the database is unreachable, and up to 5 seconds after ctx has ended.
// InTx returns
//   - nil if it was committed;
//   - lockclient.ErrUnavailable, with the outcome not_applied, if it was not: call InTx again;
//   - an error of [Guard], with the outcome not_applied, if it was not, and the caller is not the holder any more;
//   - an error that matches lockclient.ErrOutcomeUnknown if the fence can't tell, because a newer holder has written
//     since (ErrTokenStale, too), or because the database did not answer (ErrUnavailable, too).
//
// Its other errors are those of [Guard], and those of fn and of the COMMIT through [Error]. They say that nothing was
// committed. InTx also records a rejection, as far as it can, for the dashboard: the rejected transaction itself leaves
// no trace but a count.
func InTx(
	ctx context.Context, pool *pgxpool.Pool, lease *lockclient.Lease, fn func(tx pgx.Tx) error, opts ...Option,
) error {
	c := newConfig(opts)
	return guard.InTx(ctx, connections{pool, c.begin}, lease, c.resources, func(tx guard.Tx) error {
		return fn(tx.(transaction).Tx)
	})
}

type connections struct {
	pool    *pgxpool.Pool
	options pgx.TxOptions
}

func (c connections) Take(ctx context.Context) (guard.Conn, error) {
	conn, err := c.pool.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	return connection{conn, c.options}, nil
}

type connection struct {
	*pgxpool.Conn
	options pgx.TxOptions
}

func (c connection) Begin(ctx context.Context) (guard.Tx, error) { return c.begin(ctx, c.options) }

func (c connection) BeginPlain(ctx context.Context) (guard.Tx, error) {
	return c.begin(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted, AccessMode: pgx.ReadWrite})
}

func (c connection) begin(ctx context.Context, options pgx.TxOptions) (guard.Tx, error) {
	tx, err := c.BeginTx(ctx, options)
	if err != nil {
		return nil, err
	}
	return transaction{tx}, nil
}

type transaction struct{ pgx.Tx }

func (t transaction) QueryRow(ctx context.Context, sql string, args []any, into ...any) error {
	return t.Tx.QueryRow(ctx, sql, args...).Scan(into...)
}
