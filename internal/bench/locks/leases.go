//go:build unix

package locks

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencegate/fencegate/internal/bench"
)

// held is a lease that a client has.
type held struct {
	renew, release func(context.Context) error
}

// holder is a locker whose leases can be renewed.
type holder struct {
	hold func(ctx context.Context, lock string) (held, error)
	end  func() error // nil: it shares all connections
}

func (h holder) acquire(ctx context.Context, lock string) (func(context.Context) error, error) {
	lease, err := h.hold(ctx, lock)
	return lease.release, err
}

func (h holder) close() error {
	if h.end == nil {
		return nil
	}
	return h.end()
}

// TransactionSample is what heartbeats of one service cost PostgreSQL.
type TransactionSample struct {
	Service    string `json:"service"`
	Heartbeats int    `json:"heartbeats"`
	// Transactions ended in the database meanwhile, Background of them without heartbeats, as measured before.
	Transactions int64   `json:"transactions"`
	Background   float64 `json:"background"`
	PerHeartbeat float64 `json:"per_heartbeat"`
}

// transactionClients send the heartbeats whose transactions are counted.
const transactionClients = 8

// leases measures what keeps leases, beside libraries: the rates in rounds, then the transactions.
func (c Config) leases(ctx context.Context, run string, report *Report) (err error) {
	rig, err := c.openLeases(ctx, report)
	defer func() { err = errors.Join(err, rig.close()) }()
	if err != nil {
		return err
	}
	for _, clients := range c.Clients {
		l := load{run + "/leases", OwnLocks, clients, []string{Cycle, Heartbeat}}
		if err := c.roundsOf(ctx, rig.services, l, &report.Leases); err != nil {
			return err
		}
	}
	return c.countTransactions(ctx, rig.fencegate(), run+"/counted", report)
}

// heartbeat lets clients renew leases that they acquire before and release after it.
func heartbeat(
	ctx context.Context, lockers []locker, lock func(client int) string, duration time.Duration,
) (done bench.Load, err error) {
	leases, releaseAll, err := holdAll(ctx, lockers, lock)
	defer func() { err = errors.Join(err, releaseAll()) }()
	if err != nil {
		return done, err
	}
	return renewing(ctx, leases, duration)
}

// renewing lets each client renew its lease over and over.
func renewing(ctx context.Context, leases []held, duration time.Duration) (bench.Load, error) {
	return bench.Repeat(ctx, len(leases), duration, func(ctx context.Context, client, _ int) error {
		return leases[client].renew(ctx)
	})
}

// holdAll acquires a lease for each client. If one can't be acquired, releaseAll is for those before it.
func holdAll(
	ctx context.Context, lockers []locker, lock func(client int) string,
) (leases []held, releaseAll func() error, err error) {
	releaseAll = func() error {
		var errs []error
		for _, lease := range leases {
			errs = append(errs, lease.release(ctx))
		}
		return errors.Join(errs...)
	}
	for client, l := range lockers {
		lease, err := l.(holder).hold(ctx, lock(client))
		if err != nil {
			return leases, releaseAll, err
		}
		leases = append(leases, lease)
	}
	return leases, releaseAll, nil
}

// countTransactions counts the transactions of services, one after the other. The leases of all of them are there all
// the time, so that the background is the same.
func (c Config) countTransactions(ctx context.Context, services []service, run string, report *Report) (err error) {
	var ends []func() error
	defer func() {
		for _, end := range slices.Backward(ends) {
			err = errors.Join(err, end())
		}
	}()
	leases := make([][]held, len(services))
	for i, s := range services {
		lockers, closeAll, err := s.connectAll(ctx, transactionClients)
		if err != nil {
			return err
		}
		var releaseAll func() error
		leases[i], releaseAll, err = holdAll(ctx, lockers,
			func(client int) string { return lockName(run, s.name, OwnLocks, client) })
		ends = append(ends, closeAll, releaseAll)
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	db, err := pgx.Connect(ctx, c.DatabaseURL)
	if err != nil {
		return err
	}
	ends = append(ends, func() error { return db.Close(context.WithoutCancel(ctx)) })
	o := observer{db: db}
	c.progress("transactions: nothing happens for %s", 2*c.Settle+c.Idle)
	idle, _, err := o.idle(ctx, c.Settle, c.Idle+c.Settle)
	if err != nil {
		return err
	}
	for i, s := range services {
		sample, err := c.transactionsOf(ctx, o, leases[i], idle.TransactionsPerSecond)
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		sample.Service = s.name
		report.Transactions = append(report.Transactions, sample)
		c.progress("%-15s %.3f transactions for a heartbeat", s.name, sample.PerHeartbeat)
	}
	return nil
}

// transactionsOf counts until what was done has been reported: in a time as long as that in which the background was
// measured.
func (c Config) transactionsOf(
	ctx context.Context, o observer, leases []held, background float64,
) (sample TransactionSample, err error) {
	before, err := o.read(ctx)
	if err != nil {
		return sample, err
	}
	done, err := renewing(ctx, leases, c.Idle)
	if err != nil {
		return sample, err
	}
	if err := sleep(ctx, c.Settle); err != nil {
		return sample, err
	}
	after, err := o.read(ctx)
	return transactionsBetween(before, after, background, len(done.Latencies)), err
}

func transactionsBetween(before, after reading, background float64, heartbeats int) TransactionSample {
	s := TransactionSample{
		Heartbeats: heartbeats, Transactions: after.transactions - before.transactions,
		Background: background * after.at.Sub(before.at).Seconds(),
	}
	s.PerHeartbeat = (float64(s.Transactions) - s.Background) / float64(heartbeats)
	return s
}
