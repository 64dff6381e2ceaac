package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/fencegate/fencegate/store"
)

// expectHeldOut expects a lock whose lease has reached its hold_until: nobody may write, and it is grantable.
func expectHeldOut(ctx context.Context, s *fixture) error {
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
	if ended := leases[0]; ended.State != store.LeaseEnded || ended.EndReason != "max_hold" ||
		!ended.EndedAt.Equal(ended.HoldUntil) {
		return fmt.Errorf("the lease is listed as %+v, want one that has ended at its hold_until", ended)
	}
	return acquire(ctx, s)
}

// holdAMinute limits leases to less than the TTL that they ask for.
var holdAMinute = under(store.Policy{MaxHold: time.Minute})

// holdCases: a lease ends at its hold_until, however often it is renewed.
var holdCases = []storeCase{
	{"max_hold: the grant says until when", all(holdAMinute, acquire, func(ctx context.Context, s *fixture) error {
		lease := s.newest()
		if want := lease.GrantedAt.Add(time.Minute); !lease.HoldUntil.Equal(want) || !lease.ExpiresAt.Equal(want) ||
			lease.TTL != time.Hour {
			return fmt.Errorf("the lease is %+v, want one that ends for good at %s", lease, want)
		}
		lock, err := s.Lock(ctx, s.lock)
		if err == nil && (!lock.Holder().ExpiresAt.Equal(lease.ExpiresAt) ||
			!lock.Holder().HoldUntil.Equal(lease.HoldUntil)) {
			err = fmt.Errorf("the lease is %+v, and is shown as %+v", lease, lock.Holder())
		}
		return err
	})},
	{"max_hold: a renewal does not go beyond", all(holdAnHour, acquire, func(ctx context.Context, s *fixture) error {
		short, shortErr := s.Renew(ctx, s.newest().Ref(), time.Minute)
		long, longErr := s.Renew(ctx, s.newest().Ref(), 2*time.Hour)
		want := s.newest().GrantedAt.Add(time.Hour)
		if err := errors.Join(shortErr, longErr); err != nil {
			return err
		}
		if !short.ExpiresAt.Before(want) || !short.HoldUntil.Equal(want) || !long.ExpiresAt.Equal(want) ||
			!long.HoldUntil.Equal(want) {
			return fmt.Errorf("renewals made it %+v and %+v, want an end at %s", short, long, want)
		}
		return nil
	})},
	{"max_hold: without it there is no end", all(requireLeaseID, acquire, renewNewest, expectHold(false))},
	{"max_hold: when it is over, the lock is free", all(holdAnHour, acquire, holdOut, expectHeldOut)},
	{"max_hold: when it is over and was swept, the lock is free", all(holdAnHour, acquire, holdOut, sweep, expectHeldOut)},
	{"max_hold: when it is over in a session, the lock is free", all(holdAnHour, openSession, inSession(acquire), holdOut,
		keepAlive,
		func(ctx context.Context, s *fixture) error {
			_, leases, err := s.Session(ctx, s.session.ID)
			if err == nil && leases != 0 {
				err = fmt.Errorf("%d leases run in the session, want none", leases)
			}
			return err
		}, expectHeldOut)},
	{"max_hold: a lease in a session runs no longer", all(holdAMinute, openSession, inSession(acquire), keepAlive,
		func(ctx context.Context, s *fixture) error {
			want := s.newest().GrantedAt.Add(time.Minute)
			_, err := s.Acquire(ctx, s.request(store.Exclusive))
			var held *store.HeldError
			if !errors.As(err, &held) || !held.ExpiresAt.Equal(want) || !s.newest().ExpiresAt.Equal(want) ||
				!s.newest().HoldUntil.Equal(want) {
				return fmt.Errorf("the lease is %+v, another owner's acquire returned %w, want an end at %s", s.newest(), err, want)
			}
			return nil
		})},
	{"max_hold: a policy that goes lifts it with the next renewal", all(holdAnHour, acquire, dropPolicy, renewNewest,
		expectHold(false), expire)},
	{"max_hold: a policy that goes lifts it with the next keepalive",
		all(holdAnHour, openSession, inSession(acquire), dropPolicy, keepAlive, expectHold(false))},
	{"max_hold: a policy is no way back", all(holdAnHour, acquire, holdOut, under(store.Policy{MaxHold: store.MaxHoldMax}),
		renewLost,
		dropPolicy, renewLost, expectHeldOut)},
	{"max_hold: a keepalive looks at the leases once for each change of policies",
		all(holdAnHour, openSession, inSession(acquire), keepAlive,
			loseHold, keepAlive, expectHold(false), holdAnHour, keepAlive, expectHold(true))},
	{"max_hold: a keepalive comes back to a lease that was locked", all(openSession, inSession(acquire), holdAnHour,
		whileHeld("select from fence.leases where lock = $1 for update", keepAlive, expectHold(false)), keepAlive,
		expectHold(true))},
	{"max_hold: a policy is no way back in a session", all(holdAnHour, openSession, inSession(acquire), holdOut,
		under(store.Policy{MaxHold: store.MaxHoldMax}), keepAlive, expectHeldOut)},
	{"max_hold: a name of which the subtree above was granted since",
		all(holdAnHour, onBelow("/x", acquire, holdOut), acquireSubtree, onBelow("/x", renewLost, sweep, renewLost))},
	{"max_hold: the request_id of a lease that has reached it", all(holdAnHour, requestAfter("max_hold", holdOut))},
	{"max_hold: a renewal does not wait for the fence", all(acquire, holdAnHour, whileHeld(lockFenceSQL, renewNewest),
		holdOut,
		func(ctx context.Context, s *fixture) error {
			return s.expectVerdict(ctx, byOne, with(newest)(s), "token_stale max_hold")
		})},
	{"max_hold: a sweep closes the fence", all(holdAnHour, acquire, holdOut, sweep, counted(0,
		"select count(*) from fence.fences where resource = $1 and open"))},
	{"max_hold: a grant below leaves the end of the subtree to a sweep", all(inSubtree, holdAnHour, acquire, holdOut,
		acquireBelow,
		counted(1, "select count(*) from fence.leases where lock = $1 and ended_at is null"), sweep)},
	// The grant of a name below ends nothing of what the holder of the subtree could write elsewhere: that is closed
	// already.
	{"max_hold: a subtree is closed for those below", all(inSubtree, holdAnHour, acquire, wrote(with(newest, sequence(1))),
		holdOut, acquireBelow,
		rejected(with(newest, sequence(2), at("/elsewhere")), "token_stale max_hold"), sweep,
		rejected(with(newest, sequence(2), at("/elsewhere")), "token_stale max_hold"))},
}

func acquireBelow(ctx context.Context, s *fixture) error {
	_, err := s.Acquire(ctx, store.AcquireRequest{Lock: s.resource(), OwnerID: "below", TTL: time.Hour})
	return err
}

// whileHeld runs steps that must not wait for the rows that a statement locks ($1 is the lock).
func whileHeld(sql string, steps ...step) step {
	return func(ctx context.Context, s *fixture) error {
		tx, err := s.SQL.Begin(ctx)
		if err != nil {
			return err
		}
		defer tx.Rollback(ctx) //nolint:errcheck // nothing was changed
		if _, err := tx.Exec(ctx, sql, s.lock); err != nil {
			return err
		}
		brief, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		return errors.Join(s.do(brief, steps...), tx.Commit(ctx))
	}
}

// counted compares a number of rows ($1 is the lock).
func counted(want int, sql string) step {
	return func(ctx context.Context, s *fixture) error {
		var got int
		err := s.SQL.QueryRow(ctx, sql, s.lock).Scan(&got)
		if err == nil && got != want {
			err = fmt.Errorf("%s: %d, want %d", sql, got, want)
		}
		return err
	}
}

// loseHold takes the limit off the newest lease, unseen by the functions.
var loseHold = execute("update fence.leases set hold_until = null where lock = $1 and fencing_token = $2")

// expectHold compares whether the lease on the lock has a limit.
func expectHold(want bool) step {
	return func(ctx context.Context, s *fixture) error {
		lock, err := s.Lock(ctx, s.lock)
		if err == nil && lock.Holder().HoldUntil.IsZero() == want {
			err = fmt.Errorf("the lease is %+v, want one with a limit: %v", lock.Holder(), want)
		}
		return err
	}
}

// TestMaxHoldWithoutPolicies checks that hold_until closes the fence also on the fast path, which is taken when no
// policy is left.
func TestMaxHoldWithoutPolicies(t *testing.T) {
	t.Parallel()
	for name, source := range map[string]source{"a set of writes": bySet, "a write alone": byOne} {
		b := newTestbed(t)
		for _, c := range holdRuleCases {
			t.Run(c.name+" by "+name, func(t *testing.T) {
				c.given = append(c.given[:len(c.given):len(c.given)], noPolicies)
				if err := c.by(source).check(t.Context(), b); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

var noPolicies = execute("delete from fence.policies")

// TestMaxHoldEndsAnEndlessHolder checks that a holder that renews for ever loses the lock at its hold_until, and that
// the next waiter is granted it at that time.
func TestMaxHoldEndsAnEndlessHolder(t *testing.T) {
	t.Parallel()
	const hold = 300 * time.Millisecond
	b := newTestbed(t)
	s := newServices(t, b, 2, noPoll)
	holder := s.Acquire(t, 0, store.AcquireRequest{Lock: "lock", OwnerID: "endless", TTL: time.Hour})
	second := s.Queue(t, 1, store.AcquireRequest{Lock: "lock", OwnerID: "second", TTL: time.Hour})
	third := s.Queue(t, 0, store.AcquireRequest{Lock: "lock", OwnerID: "third", TTL: time.Hour})
	session := s.OpenSession(t, 0, "fourth", time.Hour)
	fourth := s.Queue(t, 0, store.AcquireRequest{Lock: "lock", OwnerID: "fourth", SessionID: session.ID})
	fifth := s.Queue(t, 1, store.AcquireRequest{Lock: "lock", OwnerID: "fifth", TTL: time.Hour})
	// Now that all wait, however long that took.
	if err := b.PutPolicy(patient(t), store.Policy{Prefix: "lock", Rule: store.RuleStrict,
		Authority: store.AuthorityBuiltin, MaxHold: hold}); err != nil {
		t.Fatal(err)
	}
	var err error
	for err == nil {
		_, err = s.At(0).Renew(patient(t), holder.Ref(), 0)
	}
	if err := expectLost(err, "lock", "max_hold"); err != nil {
		t.Error(err)
	}
	// None of them releases it, and nobody polls.
	for _, answers := range []<-chan outcome{second, third, fourth, fifth} {
		next := granted(t, answers)
		if want := next.GrantedAt.Add(hold); next.GrantedAt.Before(holder.HoldUntil) || !next.HoldUntil.Equal(want) ||
			!next.ExpiresAt.Equal(want) {
			t.Errorf("%+v was granted after %+v", next, holder)
		}
		holder = next
	}
}

// TestMaxHoldLifted checks that writes are admitted after a limit was lifted, with no policy left.
func TestMaxHoldLifted(t *testing.T) {
	t.Parallel()
	for name, lift := range map[string][]step{
		"by a renewal":   {holdAnHour, acquire, dropPolicy, renewNewest},
		"by a keepalive": {holdAnHour, openSession, inSession(acquire), dropPolicy, keepAlive},
	} {
		for way, source := range map[string]source{"a set of writes": bySet, "a write alone": byOne} {
			t.Run(name+", "+way, func(t *testing.T) {
				t.Parallel()
				s := newFixture(t, lift...)
				err := s.do(t.Context(), expectHold(false), func(ctx context.Context, s *fixture) error {
					return s.expectVerdict(ctx, source, with(newest)(s), "admitted")
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// holdAnHour limits leases to an hour, which is as long as the TTL that they ask for.
var holdAnHour = under(store.Policy{MaxHold: time.Hour})

// holdOut is when the newest lease has been renewed until its hold_until.
func holdOut(ctx context.Context, s *fixture) error { return s.holdOut(ctx, 0) }

// expireAndHoldOut is when the newest lease expired, and later its hold_until came.
func expireAndHoldOut(ctx context.Context, s *fixture) error { return s.holdOut(ctx, time.Minute) }

func (s *fixture) holdOut(ctx context.Context, expiredBefore time.Duration) error {
	_, err := s.SQL.Exec(ctx, `
		update fence.leases l
		set granted_at = l.granted_at - interval '1 day', hold_until = now.at,
			expires_at = case when l.session_id is null then greatest(now.at - $3 * interval '1 millisecond', l.ended_at)
				else l.expires_at end
		from (select clock_timestamp() as at) now
		where l.lock = $1 and l.fencing_token = $2 and l.hold_until is not null`, s.lock, s.newest().Token,
		expiredBefore.Milliseconds())
	return err
}

// backdate makes the newest lease one that was granted a day ago, and is still live.
var backdate = execute("update fence.leases set granted_at = granted_at - interval '1 day' where lock = $1 and " +
	"fencing_token = $2")

func renewNewest(ctx context.Context, s *fixture) error {
	lease, err := s.Renew(ctx, s.newest().Ref(), 0)
	if err == nil {
		s.leases[len(s.leases)-1] = lease
	}
	return err
}

// renewLost expects a renewal to say that the lease has ended at its hold_until.
func renewLost(ctx context.Context, s *fixture) error {
	_, err := s.Renew(ctx, s.newest().Ref(), 0)
	return expectLost(err, s.lock, "max_hold")
}

func keepAlive(ctx context.Context, s *fixture) error {
	_, err := s.KeepAlive(ctx, s.session.ID)
	return err
}

func dropPolicy(ctx context.Context, s *fixture) error { return s.DeletePolicy(ctx, string(s.lock)) }

// holdRuleCases: at hold_until the fence closes, before and after a sweep, however the lease came to its end.
var holdRuleCases = []ruleCase{
	{"max_hold: before it is over", given{holdAnHour, acquire}, with(newest), "admitted"},
	{"max_hold: before it is over, late", given{holdAnHour, acquire, expire}, with(newest), "admitted"},
	{"max_hold: when it is over", given{holdAnHour, acquire, holdOut}, with(newest), "token_stale max_hold"},
	{"max_hold: when it is over, numbered", given{holdAnHour, acquire, wrote(with(newest, sequence(1))), holdOut},
		with(newest, sequence(2)), "token_stale max_hold"},
	{"max_hold: when it is over, the last write again", given{holdAnHour, acquire, wrote(with(newest, sequence(1))),
		holdOut},
		with(newest, sequence(1)), "admitted replayed"},
	{"max_hold: when it is over, a number again", given{holdAnHour, acquire, wrote(with(newest)), holdOut},
		with(newest), "token_stale max_hold"},
	{"max_hold: when it is over and was swept", given{holdAnHour, acquire, holdOut, sweep}, with(newest),
		"token_stale max_hold"},
	{"max_hold: when it is over, though it expired before", given{holdAnHour, acquire, expireAndHoldOut},
		with(newest), "token_stale max_hold"},
	{"max_hold: when it is over, though it expired before and was swept",
		given{holdAnHour, acquire, expireAndHoldOut, sweep, sweep}, with(newest), "token_stale max_hold"},
	{"max_hold: when it is over and the lock was released before", given{holdAnHour, acquire, release, holdOut},
		with(newest), "token_stale released"},
	{"max_hold: when it is over and another has the lock", given{holdAnHour, acquire, holdOut, acquire},
		with(first), "token_stale superseded"},
	{"max_hold: the next holder", given{holdAnHour, acquire, holdOut, acquire}, with(newest), "admitted"},
	{"max_hold: the next holder, swept", given{holdAnHour, acquire, expireAndHoldOut, acquire, sweep, sweep},
		with(newest), "admitted"},
	{"max_hold: of a reader", given{holdAnHour, share, holdOut}, with(newest), "token_stale shared"},
	{"max_hold: the policy was deleted since", given{holdAnHour, acquire, holdOut, dropPolicy}, with(newest),
		"token_stale max_hold"},
	{"max_hold: the policy was deleted before", given{holdAnHour, acquire, dropPolicy, holdOut}, with(newest),
		"token_stale max_hold"},
	{"max_hold: the policy came after the grant", given{acquire, backdate, holdAnHour, renewLost}, with(newest),
		"token_stale max_hold"},
	{"max_hold: the policy came after the grant and went", given{acquire, holdAnHour, renewNewest, dropPolicy, holdOut},
		with(newest), "token_stale max_hold"},
	{"max_hold: the policy came after the grant, before the next renewal", given{acquire, backdate, holdAnHour},
		with(newest), "admitted"},
	{"max_hold: of a lease in a session", given{holdAnHour, openSession, inSession(acquire), holdOut}, with(newest),
		"token_stale max_hold"},
	{"max_hold: of a lease in a session, swept", given{holdAnHour, openSession, inSession(acquire), holdOut, sweep},
		with(newest), "token_stale max_hold"},
	{"max_hold: of a lease in a session that has ended since",
		given{holdAnHour, openSession, inSession(acquire), holdOut, endSession}, with(newest), "token_stale max_hold"},
	{"max_hold: the policy came after the grant in a session",
		given{openSession, inSession(acquire), backdate, holdAnHour, keepAlive}, with(newest), "token_stale max_hold"},
	{"max_hold: the policy came after the grant in a session and went",
		given{openSession, inSession(acquire), holdAnHour, keepAlive, dropPolicy, holdOut}, with(newest),
		"token_stale max_hold"},
}

// firstHoldOut is when the hold_until of the first of two leases has come, which expired before.
func firstHoldOut(ctx context.Context, s *fixture) error {
	first := &fixture{testbed: s.testbed, lock: s.lock, leases: s.leases[:1]}
	return first.holdOut(ctx, time.Minute)
}
