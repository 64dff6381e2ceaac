package store_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/fencegate/fencegate/store"
)

// expectHeldOut expects a lock whose lease has reached its hold_until: nobody may write, and it is grantable.
func (s *stage) expectHeldOut(ctx context.Context) error {
	fence, fenceErr := s.Fence(ctx, s.lock)
	lock, lockErr := s.Lock(ctx, s.lock)
	if err := errors.Join(fenceErr, lockErr); err != nil {
		return err
	}
	if fence.Open || lock.State != store.LockFree || len(lock.Holders) > 0 {
		return fmt.Errorf("the fence is %+v and the lock %+v, want one that is closed and one that is free", fence, lock)
	}
	for _, state := range []store.LockState{store.LockFree, store.LockExpired, store.LockHeld} {
		found, err := s.CountLocks(ctx, store.LockQuery{Prefix: string(s.lock), State: state, Limit: 1})
		if err != nil || (found > 0) != (state == store.LockFree) {
			return fmt.Errorf("%d locks are listed as %s (%w)", found, state, err)
		}
	}
	leases, err := s.Leases(ctx, store.LeaseQuery{Lock: s.lock, Limit: 1})
	if err != nil {
		return err
	}
	if ended := leases[0]; ended.State != store.LeaseEnded || ended.EndReason != "max_hold" || !ended.EndedAt.Equal(ended.HoldUntil) {
		return fmt.Errorf("the lease is listed as %+v, want one that has ended at its hold_until", ended)
	}
	return acquire(ctx, s)
}

// holdTrials: a lease ends at its hold_until, however often it is renewed.
var holdTrials = []trial{
	{"max_hold: the grant says until when", func(ctx context.Context, s *stage) error {
		if err := s.do(ctx, under(store.Policy{MaxHold: time.Minute}), acquire); err != nil {
			return err
		}
		lease := s.newest()
		if want := lease.GrantedAt.Add(time.Minute); !lease.HoldUntil.Equal(want) || !lease.ExpiresAt.Equal(want) || lease.TTL != time.Hour {
			return fmt.Errorf("the lease is %+v, want one that ends for good at %s", lease, want)
		}
		lock, err := s.Lock(ctx, s.lock)
		if err == nil && (!lock.Holder().ExpiresAt.Equal(lease.ExpiresAt) || !lock.Holder().HoldUntil.Equal(lease.HoldUntil)) {
			err = fmt.Errorf("the lease is %+v, and is shown as %+v", lease, lock.Holder())
		}
		return err
	}},
	{"max_hold: a renewal does not go beyond", func(ctx context.Context, s *stage) error {
		if err := s.do(ctx, holdAnHour, acquire); err != nil {
			return err
		}
		short, shortErr := s.Renew(ctx, s.newest().Ref(), time.Minute)
		long, longErr := s.Renew(ctx, s.newest().Ref(), 2*time.Hour)
		want := s.newest().GrantedAt.Add(time.Hour)
		if err := errors.Join(shortErr, longErr); err != nil {
			return err
		}
		if !short.ExpiresAt.Before(want) || !short.HoldUntil.Equal(want) || !long.ExpiresAt.Equal(want) || !long.HoldUntil.Equal(want) {
			return fmt.Errorf("renewals made it %+v and %+v, want an end at %s", short, long, want)
		}
		return nil
	}},
	{"max_hold: without it there is no end", func(ctx context.Context, s *stage) error {
		if err := s.do(ctx, requireLeaseID, acquire, renewNewest); err != nil {
			return err
		}
		if !s.newest().HoldUntil.IsZero() {
			return fmt.Errorf("the lease is %+v", s.newest())
		}
		return nil
	}},
	{"max_hold: when it is over, the lock is free", func(ctx context.Context, s *stage) error {
		if err := s.do(ctx, holdAnHour, acquire, holdOut); err != nil {
			return err
		}
		return s.expectHeldOut(ctx)
	}},
	{"max_hold: when it is over and was swept, the lock is free", func(ctx context.Context, s *stage) error {
		if err := s.do(ctx, holdAnHour, acquire, holdOut, sweep); err != nil {
			return err
		}
		return s.expectHeldOut(ctx)
	}},
	{"max_hold: when it is over in a session, the lock is free", func(ctx context.Context, s *stage) error {
		if err := s.do(ctx, holdAnHour, openSession, inSession(acquire), holdOut, keepAlive); err != nil {
			return err
		}
		if _, leases, err := s.Session(ctx, s.session.ID); err != nil || leases != 0 {
			return fmt.Errorf("%d leases run in the session (%w)", leases, err)
		}
		return s.expectHeldOut(ctx)
	}},
	{"max_hold: a lease in a session runs no longer", func(ctx context.Context, s *stage) error {
		if err := s.do(ctx, under(store.Policy{MaxHold: time.Minute}), openSession, inSession(acquire), keepAlive); err != nil {
			return err
		}
		want := s.newest().GrantedAt.Add(time.Minute)
		_, err := s.Acquire(ctx, s.request(store.Exclusive))
		var held *store.HeldError
		if !errors.As(err, &held) || !held.ExpiresAt.Equal(want) || !s.newest().ExpiresAt.Equal(want) || !s.newest().HoldUntil.Equal(want) {
			return fmt.Errorf("the lease is %+v, and another owner is told %w, want an end at %s", s.newest(), err, want)
		}
		return nil
	}},
	{"max_hold: a policy that goes lifts it with the next renewal", func(ctx context.Context, s *stage) error {
		if err := s.do(ctx, holdAnHour, acquire, dropPolicy, renewNewest); err != nil {
			return err
		}
		if lease := s.newest(); !lease.HoldUntil.IsZero() {
			return fmt.Errorf("the lease is %+v, want one without an end", lease)
		}
		return s.do(ctx, expire)
	}},
	{"max_hold: a policy that goes lifts it with the next keepalive", func(ctx context.Context, s *stage) error {
		if err := s.do(ctx, holdAnHour, openSession, inSession(acquire), dropPolicy, keepAlive); err != nil {
			return err
		}
		lock, err := s.Lock(ctx, s.lock)
		if err == nil && !lock.Holder().HoldUntil.IsZero() {
			err = fmt.Errorf("the lease is %+v, want one without an end", lock.Holder())
		}
		return err
	}},
	{"max_hold: a policy is no way back", func(ctx context.Context, s *stage) error {
		err := errors.Join(s.do(ctx, holdAnHour, acquire, holdOut, under(store.Policy{MaxHold: store.MaxHoldMax}), renewLost), s.do(ctx, dropPolicy, renewLost))
		if err != nil {
			return err
		}
		return s.expectHeldOut(ctx)
	}},
	{"max_hold: a keepalive looks at the leases once for each change of policies", func(ctx context.Context, s *stage) error {
		if err := errors.Join(s.do(ctx, holdAnHour, openSession, inSession(acquire), keepAlive), s.do(ctx, loseHold, keepAlive)); err != nil {
			return err
		}
		if err := s.expectHold(ctx, false); err != nil {
			return err
		}
		return errors.Join(s.do(ctx, holdAnHour, keepAlive), s.expectHold(ctx, true))
	}},
	{"max_hold: a keepalive comes back to a lease that was locked", func(ctx context.Context, s *stage) error {
		if err := s.do(ctx, openSession, inSession(acquire), holdAnHour); err != nil {
			return err
		}
		tx, err := s.sql.Begin(ctx)
		if err != nil {
			return err
		}
		defer tx.Rollback(ctx) //nolint:errcheck // nothing was changed
		if _, err := tx.Exec(ctx, "select from fence.leases where lock = $1 for update", s.lock); err != nil {
			return err
		}
		brief, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		return errors.Join(s.do(brief, keepAlive), s.expectHold(ctx, false), tx.Commit(ctx), s.do(ctx, keepAlive), s.expectHold(ctx, true))
	}},
	{"max_hold: a policy is no way back in a session", func(ctx context.Context, s *stage) error {
		err := s.do(ctx, holdAnHour, openSession, inSession(acquire), holdOut, under(store.Policy{MaxHold: store.MaxHoldMax}), keepAlive)
		if err != nil {
			return err
		}
		return s.expectHeldOut(ctx)
	}},
	{"max_hold: a name of which the subtree above was granted since", func(ctx context.Context, s *stage) error {
		below := s.below("/x")
		if err := errors.Join(s.do(ctx, holdAnHour), below.do(ctx, acquire, holdOut), s.do(ctx, acquireSubtree)); err != nil {
			return err
		}
		return errors.Join(below.do(ctx, renewLost), below.do(ctx, sweep, renewLost))
	}},
	{"max_hold: the request_id of a lease that has reached it", func(ctx context.Context, s *stage) error {
		if err := s.do(ctx, holdAnHour, request("r"), holdOut); err != nil {
			return err
		}
		return s.unchanged(ctx, func() error { return expectLost(request("r")(ctx, s), s.lock, "max_hold") })
	}},
	{"max_hold: a renewal does not wait for the fence", func(ctx context.Context, s *stage) error {
		if err := s.do(ctx, acquire, holdAnHour); err != nil {
			return err
		}
		tx, err := s.sql.Begin(ctx)
		if err != nil {
			return err
		}
		defer tx.Rollback(ctx) //nolint:errcheck // nothing was changed
		if _, err := tx.Exec(ctx, "select from fence.fences where resource = $1 for update", s.lock); err != nil {
			return err
		}
		brief, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		if err := errors.Join(s.do(brief, renewNewest), tx.Commit(ctx), s.do(ctx, holdOut)); err != nil {
			return err
		}
		return s.expectVerdict(ctx, byOne, with(newest)(s), store.VerdictTokenStale, "max_hold")
	}},
	{"max_hold: a sweep closes the fence", func(ctx context.Context, s *stage) error {
		if err := s.do(ctx, holdAnHour, acquire, holdOut, sweep); err != nil {
			return err
		}
		var open bool
		err := s.sql.QueryRow(ctx, "select open from fence.fences where resource = $1", s.lock).Scan(&open)
		if err == nil && open {
			err = errors.New("the row of the fence is open")
		}
		return err
	}},
	{"max_hold: a grant below leaves the end of the subtree to a sweep", func(ctx context.Context, s *stage) error {
		s.subtree = true
		if err := s.do(ctx, holdAnHour, acquire, holdOut); err != nil {
			return err
		}
		if _, err := s.Acquire(ctx, store.AcquireRequest{Lock: s.resource(), OwnerID: "below", TTL: time.Hour}); err != nil {
			return err
		}
		var left int
		err := s.sql.QueryRow(ctx, "select count(*) from fence.leases where lock = $1 and ended_at is null", s.lock).Scan(&left)
		if err == nil && left != 1 {
			err = errors.New("the lease was ended, and its fence was not closed")
		}
		return errors.Join(err, s.do(ctx, sweep))
	}},
	{"max_hold: a subtree is closed for those below", func(ctx context.Context, s *stage) error {
		s.subtree = true
		if err := s.do(ctx, holdAnHour, acquire, wrote(with(newest, sequence(1))), holdOut); err != nil {
			return err
		}
		// The grant of a name below ends nothing of what the holder of the subtree could write elsewhere: that is closed already.
		if _, err := s.Acquire(ctx, store.AcquireRequest{Lock: s.resource(), OwnerID: "below", TTL: time.Hour}); err != nil {
			return err
		}
		elsewhere := with(newest, sequence(2))(s)
		elsewhere.Resource = s.lock + "/elsewhere"
		for _, step := range []step{nothingHappens, sweep} {
			if err := s.do(ctx, step); err != nil {
				return err
			}
			if err := s.expectVerdict(ctx, bySet, elsewhere, store.VerdictTokenStale, "max_hold"); err != nil {
				return err
			}
		}
		return nil
	}},
}

// loseHold takes the limit off the newest lease, behind the back of all.
func loseHold(ctx context.Context, s *stage) error {
	_, err := s.sql.Exec(ctx, "update fence.leases set hold_until = null where lock = $1 and fencing_token = $2", s.lock, s.newest().Token)
	return err
}

// expectHold tells whether the lease on the lock has a limit.
func (s *stage) expectHold(ctx context.Context, want bool) error {
	lock, err := s.Lock(ctx, s.lock)
	if err == nil && lock.Holder().HoldUntil.IsZero() == want {
		err = fmt.Errorf("the lease is %+v, want one with a limit: %v", lock.Holder(), want)
	}
	return err
}

func nothingHappens(context.Context, *stage) error { return nil }

func TestMaxHold(t *testing.T) {
	t.Parallel()
	runTrials(t, holdTrials)
}

// Without any policy left, writes go the fast path, on which nothing but the fence is looked at.
func TestMaxHoldWithoutPolicies(t *testing.T) {
	t.Parallel()
	for name, source := range map[string]source{"a set of writes": bySet, "a write alone": byOne} {
		b := newTestbed(t)
		for _, c := range holdCases {
			t.Run(c.name+" by "+name, func(t *testing.T) {
				c.given = append(c.given[:len(c.given):len(c.given)], noPolicies)
				if err := c.trial(source).play(t.Context(), b); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

func noPolicies(ctx context.Context, s *stage) error {
	_, err := s.sql.Exec(ctx, "delete from fence.policies")
	return err
}

// A holder that renews for ever is stopped by the clock: the renewal says so, and the next in the queue is granted the lock at that time.
func TestMaxHoldEndsAnEndlessHolder(t *testing.T) {
	t.Parallel()
	const hold = 300 * time.Millisecond
	b := newTestbed(t)
	s := newServices(t, b, 2, noPoll)
	if err := b.PutPolicy(patient(t), store.Policy{Prefix: "lock", Rule: store.RuleStrict, Authority: store.AuthorityBuiltin, MaxHold: hold}); err != nil {
		t.Fatal(err)
	}
	holder := s.acquire(t, 0, store.AcquireRequest{Lock: "lock", OwnerID: "endless", TTL: time.Hour})
	second := s.queue(t, 1, store.AcquireRequest{Lock: "lock", OwnerID: "second", TTL: time.Hour})
	third := s.queue(t, 0, store.AcquireRequest{Lock: "lock", OwnerID: "third", TTL: time.Hour})
	session := s.session(t, 0, "fourth", time.Hour)
	fourth := s.queue(t, 0, store.AcquireRequest{Lock: "lock", OwnerID: "fourth", SessionID: session.ID})
	fifth := s.queue(t, 1, store.AcquireRequest{Lock: "lock", OwnerID: "fifth", TTL: time.Hour})
	var err error
	for err == nil {
		_, err = s.at(0).Renew(patient(t), holder.Ref(), 0)
	}
	if err := expectLost(err, "lock", "max_hold"); err != nil {
		t.Error(err)
	}
	// None of them releases it, and nobody polls.
	for _, answers := range []<-chan outcome{second, third, fourth, fifth} {
		next := granted(t, answers)
		if want := next.GrantedAt.Add(hold); next.GrantedAt.Before(holder.HoldUntil) || !next.HoldUntil.Equal(want) || !next.ExpiresAt.Equal(want) {
			t.Errorf("%+v was granted after %+v", next, holder)
		}
		holder = next
	}
}

// A limit that was lifted leaves its mark on the fence: writes are admitted, with no limit left anywhere and no policy.
func TestMaxHoldLifted(t *testing.T) {
	t.Parallel()
	for name, lift := range map[string][]step{
		"by a renewal":   {holdAnHour, acquire, dropPolicy, renewNewest},
		"by a keepalive": {holdAnHour, openSession, inSession(acquire), dropPolicy, keepAlive},
	} {
		for way, source := range map[string]source{"a set of writes": bySet, "a write alone": byOne} {
			t.Run(name+", "+way, func(t *testing.T) {
				t.Parallel()
				s := &stage{testbed: newTestbed(t), lock: "lock"}
				if err := s.do(t.Context(), lift...); err != nil {
					t.Fatal(err)
				}
				err := errors.Join(s.expectHold(t.Context(), false), s.expectVerdict(t.Context(), source, with(newest)(s), store.Admitted, ""))
				if err != nil {
					t.Error(err)
				}
			})
		}
	}
}
