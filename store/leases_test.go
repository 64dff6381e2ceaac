package store_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/fencegate/fencegate/store"
)

// leaseTrials are what leases promise, one call after the other.
var leaseTrials = []trial{
	{"P1: one holder", func(ctx context.Context, s *stage) error {
		if err := s.do(ctx, acquire); err != nil {
			return err
		}
		return s.expectHeld(ctx, "another")
	}},
	{"P1: not even its owner again", func(ctx context.Context, s *stage) error {
		if err := s.do(ctx, acquire); err != nil {
			return err
		}
		return s.expectHeld(ctx, s.newest().OwnerID)
	}},
	{"P2: tokens increase, whatever ended the lease", func(ctx context.Context, s *stage) error {
		before := given{acquire, release, acquire, expire, acquire, breakLock, acquire, expire, sweep, acquire, expire, release, acquire}
		if err := s.do(ctx, before...); err != nil {
			return err
		}
		for i, lease := range s.leases[1:] {
			if lease.Token <= s.leases[i].Token {
				return fmt.Errorf("token %d was granted after %d", lease.Token, s.leases[i].Token)
			}
		}
		return nil
	}},
	{"P2: a sequence that lags behind the fence", func(ctx context.Context, s *stage) error {
		if err := s.do(ctx, acquire, release); err != nil {
			return err
		}
		if _, err := s.sql.Exec(ctx, "select setval('fence.tokens', greatest($1 - 10, 1))", s.newest().Token); err != nil {
			return err
		}
		if err := s.do(ctx, acquire); err != nil {
			return err
		}
		if s.newest().Token <= s.leases[0].Token {
			return fmt.Errorf("token %d was granted after %d", s.newest().Token, s.leases[0].Token)
		}
		return nil
	}},
	{"P2: tokens start above those of an authority before", func(ctx context.Context, s *stage) error {
		if err := s.do(ctx, external, wrote(with(token(1<<40))), under(store.Policy{}), acquire); err != nil {
			return err
		}
		if s.newest().Token <= 1<<40 {
			return fmt.Errorf("token %d was granted after a write with %d", s.newest().Token, 1<<40)
		}
		return s.expectVerdict(ctx, bySet, with(newest)(s), store.Admitted, "")
	}},
	{"P3: the grant raises the fence, not the first write", func(ctx context.Context, s *stage) error {
		if err := s.do(ctx, acquire, wrote(with(newest, sequence(1))), replace); err != nil {
			return err
		}
		return s.expectVerdict(ctx, bySet, with(first, sequence(2))(s), store.VerdictTokenStale, "superseded")
	}},
	{"P3: a write in flight when the lock is granted", inFlight},
	{"P7: an expired lock is granted without a sweep", func(ctx context.Context, s *stage) error {
		return s.do(ctx, given{acquire, expire, acquire}...)
	}},
	{"P7: a lease that expires by itself is replaced", expiresByItself},
	{"a lease begins after the one before it has ended", afterSweep},
	{"a renewal in time that is not committed yet", renewedInTime},
	{"a renewal lasts from now", func(ctx context.Context, s *stage) error {
		if err := s.do(ctx, acquire); err != nil {
			return err
		}
		return s.expectRenewal(ctx, 2*time.Hour, 2*time.Hour)
	}},
	{"a renewal keeps the TTL", func(ctx context.Context, s *stage) error {
		if err := s.do(ctx, acquire); err != nil {
			return err
		}
		return s.expectRenewal(ctx, 0, time.Hour)
	}},
	{"a renewed lease may be made shorter", func(ctx context.Context, s *stage) error {
		if err := s.do(ctx, acquire); err != nil {
			return err
		}
		return s.expectRenewal(ctx, time.Second, time.Second)
	}},
	{"a release frees the lock", func(ctx context.Context, s *stage) error {
		return s.do(ctx, given{acquire, release, acquire}...)
	}},
	{"a late release closes the fence", func(ctx context.Context, s *stage) error {
		if err := s.do(ctx, acquire, expire, sweep, release); err != nil {
			return err
		}
		return s.expectOpen(ctx, false)
	}},
	{"a release twice succeeds twice", func(ctx context.Context, s *stage) error {
		return s.do(ctx, given{acquire, release, release}...)
	}},
	{"a release twice succeeds twice, also after another grant", func(ctx context.Context, s *stage) error {
		if err := s.do(ctx, given{acquire, release, acquire}...); err != nil {
			return err
		}
		if err := s.unchanged(ctx, func() error { return s.Release(ctx, s.leases[0].Ref()) }); err != nil {
			return err
		}
		return s.expectOpen(ctx, true)
	}},
	{"a break frees the lock", func(ctx context.Context, s *stage) error {
		return s.do(ctx, given{acquire, breakLock, acquire}...)
	}},
	{"a break closes the fence of a late holder", func(ctx context.Context, s *stage) error {
		if err := s.do(ctx, acquire, expire, breakLock); err != nil {
			return err
		}
		return s.expectOpen(ctx, false)
	}},
}

func TestLeases(t *testing.T) {
	t.Parallel()
	runTrials(t, leaseTrials)
}

// expectHeld tries to acquire, which must change nothing, and compares what is told of the holder.
func (s *stage) expectHeld(ctx context.Context, owner string) error {
	return s.unchanged(ctx, func() error {
		_, err := s.Acquire(ctx, store.AcquireRequest{Lock: s.lock, OwnerID: owner})
		var held *store.HeldError
		switch {
		case !errors.As(err, &held), !errors.Is(err, store.ErrLeaseHeld):
			return fmt.Errorf("the acquire returned %w, want a HeldError", err)
		case held.Lock != s.lock, held.OwnerID != s.newest().OwnerID, !held.ExpiresAt.Equal(s.newest().ExpiresAt):
			return fmt.Errorf("%+v was said of %+v", *held, s.newest())
		case held.Remaining <= 0, held.Remaining > s.newest().TTL:
			return fmt.Errorf("%s remain of a lease of %s", held.Remaining, s.newest().TTL)
		}
		return nil
	})
}

func (s *stage) expectRenewal(ctx context.Context, ask, want time.Duration) error {
	var now time.Time
	if err := s.sql.QueryRow(ctx, "select clock_timestamp()").Scan(&now); err != nil {
		return err
	}
	renewed, err := s.Renew(ctx, s.newest().Ref(), ask)
	if err != nil {
		return err
	}
	if renewed.ExpiresAt.Before(now.Add(want)) {
		return fmt.Errorf("renewed at %s for %s, it expires at %s", now, want, renewed.ExpiresAt)
	}
	same := s.newest()
	same.TTL, same.ExpiresAt = want, renewed.ExpiresAt
	if fmt.Sprint(renewed) != fmt.Sprint(same) {
		return fmt.Errorf("the lease became %+v, want %+v", renewed, same)
	}
	return nil
}

func (s *stage) expectOpen(ctx context.Context, open bool) error {
	fence, err := s.Fence(ctx, s.lock)
	if err == nil && fence.Open != open {
		err = fmt.Errorf("the fence is %+v, want open %v", fence, open)
	}
	return err
}

// inFlight grants a lock while a write under the older token waits for the fence: the write was sent, and its statement began,
// before the grant was committed.
func inFlight(ctx context.Context, s *stage) error {
	if err := s.do(ctx, acquire, expire); err != nil {
		return err
	}
	tx, err := s.sql.Begin(ctx)
	if err != nil {
		return err
	}
	defer tx.Rollback(ctx) //nolint:errcheck // it is committed below, or the trial failed
	if _, err := tx.Exec(ctx, "select fence.acquire(fence.lease_request($1, 'the new one', 'exclusive', 'node', 60000, null, null, null), 0, null)", s.lock); err != nil {
		return err
	}
	written := make(chan error, 1)
	go func() {
		_, err := bySetVerdict(ctx, s.Store, with(first)(s), store.VerdictTokenStale, "superseded")
		written <- err
	}()
	if err := s.awaitBlocked(ctx, written); err != nil {
		return err
	}
	if err := tx.Commit(ctx); err != nil {
		return err
	}
	return <-written
}

func bySetVerdict(
	ctx context.Context, s *store.Store, write store.Write, verdict store.Verdict, reason string,
) (store.Result, error) {
	result, err := bySet(ctx, s, write)
	if err != nil {
		return result, err
	}
	gotVerdict, gotReason, err := verdictOf(result)
	if err == nil && (gotVerdict != verdict || gotReason != reason) {
		err = fmt.Errorf("the verdict is %s %q, want %s %q", gotVerdict, gotReason, verdict, reason)
	}
	return result, err
}

// expiresByItself waits until the database's own clock has passed the end of the shortest lease.
func expiresByItself(ctx context.Context, s *stage) error {
	lease, err := s.Acquire(ctx, store.AcquireRequest{Lock: s.lock, OwnerID: "short", TTL: store.TTLMin})
	if err != nil {
		return err
	}
	for expired := false; !expired; {
		err := s.sql.QueryRow(ctx, "select clock_timestamp() >= $1", lease.ExpiresAt).Scan(&expired)
		if err != nil {
			return err
		}
	}
	return s.do(ctx, acquire)
}

// whileLeaseIsLocked acquires a lock whose lease has run out by the clock, and which somebody else has in hand.
func (s *stage) whileLeaseIsLocked(ctx context.Context, meanwhile func(pgx.Tx) error) (store.Lease, error) {
	if err := s.do(ctx, acquire, expire); err != nil {
		return store.Lease{}, err
	}
	var lease store.Lease
	err := s.whileInHand(ctx, "select from fence.leases where lock = $1 for update", func() (err error) {
		lease, err = s.Acquire(ctx, store.AcquireRequest{Lock: s.lock, OwnerID: "the next"})
		return err
	}, meanwhile)
	return lease, err
}

// whileInHand sends what waits for a row that is of the lock, and meanwhile does something to it.
func (s *stage) whileInHand(ctx context.Context, row string, send func() error, meanwhile func(pgx.Tx) error) error {
	tx, err := s.sql.Begin(ctx)
	if err != nil {
		return err
	}
	defer tx.Rollback(ctx) //nolint:errcheck // it is committed below, or the trial failed
	if _, err := tx.Exec(ctx, row, s.lock); err != nil {
		return err
	}
	sent := make(chan error, 1)
	go func() { sent <- send() }()
	if err := errors.Join(s.awaitBlocked(ctx, sent), meanwhile(tx), tx.Commit(ctx)); err != nil {
		return err
	}
	return <-sent
}

// afterSweep grants a lock whose lease a sweep has in hand, and which is ended while the grant waits for that.
func afterSweep(ctx context.Context, s *stage) error {
	var ended time.Time
	lease, err := s.whileLeaseIsLocked(ctx, func(tx pgx.Tx) error {
		return tx.QueryRow(ctx, `
			update fence.leases set expires_at = clock_timestamp(), ended_at = clock_timestamp(), end_reason = 'expired'
			where lock = $1 returning ended_at`, s.lock).Scan(&ended)
	})
	if err != nil {
		return err
	}
	if lease.GrantedAt.Before(ended) {
		return fmt.Errorf("a lease was granted at %s, the one before it ended at %s", lease.GrantedAt, ended)
	}
	return nil
}

// renewedInTime is a heartbeat that had the lease in hand before it ran out: whoever sees that it has run out must wait for that.
func renewedInTime(ctx context.Context, s *stage) error {
	lease, err := s.whileLeaseIsLocked(ctx, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "update fence.leases set expires_at = clock_timestamp() + interval '1 hour' where lock = $1", s.lock)
		return err
	})
	if !errors.Is(err, store.ErrLeaseHeld) {
		return fmt.Errorf("granted is %+v (%w) beside a lease that was renewed in time", lease, err)
	}
	return nil
}

func TestLeaseIsWhatWasAskedFor(t *testing.T) {
	t.Parallel()
	b := newTestbed(t)
	metadata := json.RawMessage(`{"host": "a", "pid":1, "pid":2}`)
	lease, err := b.Acquire(t.Context(), store.AcquireRequest{
		Lock: "jobs/42", OwnerID: "wörker", TTL: 1234 * time.Millisecond, Metadata: metadata,
	})
	if err != nil {
		t.Fatal(err)
	}
	want := store.Lease{
		Lock: "jobs/42", OwnerID: "wörker", ID: lease.ID, Token: 1001, Mode: "exclusive", Scope: "node", TTL: 1234 * time.Millisecond,
		GrantedAt: lease.GrantedAt, ExpiresAt: lease.GrantedAt.Add(1234 * time.Millisecond), Metadata: metadata,
	}
	if fmt.Sprintf("%+v", lease) != fmt.Sprintf("%+v", want) || lease.ID == uuid.Nil {
		t.Errorf("the lease is\n%+v, want\n%+v", lease, want)
	}
	defaulted, err := b.Acquire(t.Context(), store.AcquireRequest{Lock: "jobs/43", OwnerID: "w"})
	if err != nil || defaulted.TTL != store.TTLDefault || defaulted.Metadata != nil {
		t.Errorf("the lease is %+v (%v), want the default TTL and no metadata", defaulted, err)
	}
}
