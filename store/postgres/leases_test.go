package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencegate/fencegate/store"
)

// leaseCases are promises of leases that the conformance suite can't check: they look at fences, or need SQL to happen.
var leaseCases = []storeCase{
	{"P1: one holder", all(acquire, changingNothing(heldBy(acquire, "owner-1")))},
	{"P1: not even its owner again", all(acquire, changingNothing(heldBy(acquireAgain, "owner-1")))},
	{"P2: a sequence that lags behind the fence", all(acquire, release, lag, acquire, expectGreater)},
	{"P2: tokens start above those of an authority before", all(external, wrote(with(token(1<<40))),
		under(store.Policy{}), acquire, func(_ context.Context, s *fixture) error {
			if s.newest().Token <= 1<<40 {
				return fmt.Errorf("token %d was granted after a write with %d", s.newest().Token, 1<<40)
			}
			return nil
		}, wrote(with(newest)))},
	{"P3: the grant raises the fence, not the first write", all(acquire, wrote(with(newest, sequence(1))), replace,
		rejected(with(first, sequence(2)), "token_stale superseded"))},
	{"P3: a write in flight when the lock is granted", all(acquire, expire,
		whileGranted("", store.Node, rejectedMeanwhile(with(first), "superseded")))},
	{"P7: an expired lock is granted without a sweep", all(acquire, expire, acquire)},
	{"a lease begins after the one before it has ended", all(acquire, expire, grantedAfterSweep)},
	{"a renewal in time that is not committed yet", all(acquire, expire, renewedInTime)},
	{"a late release closes the fence", all(acquire, expire, sweep, release, expectOpen(false))},
	{"a release sent again leaves the next grant's fence open", all(acquire, release, acquire,
		changingNothing(func(ctx context.Context, s *fixture) error { return s.Release(ctx, s.leases[0].Ref()) }),
		expectOpen(true))},
	{"a lock under an external authority is not granted",
		all(external, changingNothing(func(ctx context.Context, s *fixture) error {
			if err := acquire(ctx, s); !errors.Is(err, store.ErrExternalAuthority) {
				return fmt.Errorf("the acquire returned %w, want ErrExternalAuthority", err)
			}
			return nil
		}))},
	{"a lock that was never granted", changingNothing(expectNoSuchLock)},
	{"a break closes the fence of a late holder", all(acquire, expire, breakLock, expectOpen(false))},
}

// acquireAgain is an acquire of the first owner.
func acquireAgain(ctx context.Context, s *fixture) error {
	_, err := s.Acquire(ctx, store.AcquireRequest{Lock: s.lock, OwnerID: "owner-1"})
	return err
}

// rejectedMeanwhile expects that a write is stale, for a reason. Other calls may change rows at the same time.
func rejectedMeanwhile(spec writeSpec, reason string) step {
	return func(ctx context.Context, s *fixture) error {
		result, err := bySet(ctx, s.Store, spec(s))
		if got := brief(result); err == nil && got != "token_stale "+reason {
			err = fmt.Errorf("the write is %s, want token_stale %s", got, reason)
		}
		return err
	}
}

// acquireWhileLeaseIsLocked acquires the lock, whose lease has expired and is locked, and changed, by another
// transaction.
func (s *fixture) acquireWhileLeaseIsLocked(ctx context.Context, meanwhile func(pgx.Tx) error) (lease store.Lease,
	err error) {
	lock := executing(ctx, "select from fence.leases where lock = $1 for update", s.lock)
	err = s.whileLocked(ctx, lock, func() (err error) {
		lease, err = s.Acquire(ctx, store.AcquireRequest{Lock: s.lock, OwnerID: "the next"})
		return err
	}, meanwhile)
	return lease, err
}

// grantedAfterSweep grants a lock while a sweep ends its lease: the new lease begins after that.
func grantedAfterSweep(ctx context.Context, s *fixture) error {
	var ended time.Time
	lease, err := s.acquireWhileLeaseIsLocked(ctx, func(tx pgx.Tx) error {
		return tx.QueryRow(ctx, `
			update fence.leases set expires_at = clock_timestamp(), ended_at = clock_timestamp(), end_reason = 'expired'
			where lock = $1 returning ended_at`, s.lock).Scan(&ended)
	})
	if err == nil && lease.GrantedAt.Before(ended) {
		err = fmt.Errorf("a lease was granted at %s, the one before it ended at %s", lease.GrantedAt, ended)
	}
	return err
}

// renewedInTime is a renewal that had locked the lease before it ran out: an acquire must wait for it.
func renewedInTime(ctx context.Context, s *fixture) error {
	lease, err := s.acquireWhileLeaseIsLocked(ctx, executing(ctx,
		"update fence.leases set expires_at = clock_timestamp() + interval '1 hour' where lock = $1", s.lock))
	if !errors.Is(err, store.ErrLeaseHeld) {
		return fmt.Errorf("%+v was granted (%w) beside a lease that was renewed in time", lease, err)
	}
	return nil
}
