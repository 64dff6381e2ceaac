package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/fencegate/fencegate/store"
)

// expectHeldOut expects a lock whose lease has reached its hold_until: it expired then, and the lock is grantable.
func expectHeldOut(ctx context.Context, s *fixture) error {
	lock, lockErr := s.Lock(ctx, s.lock)
	leases, err := s.Leases(ctx, store.LeaseQuery{Lock: s.lock, Limit: 1})
	if err := errors.Join(lockErr, err); err != nil {
		return err
	}
	if lock.State != store.LockExpired {
		return fmt.Errorf("the lock is %+v, want one whose holder is late", lock)
	}
	if ended := leases[0]; ended.State != store.LeaseEnded || ended.EndReason != "expired" ||
		!ended.EndedAt.Equal(ended.HoldUntil) {
		return fmt.Errorf("the lease is listed as %+v, want one that expired at its hold_until", ended)
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
		all(holdAnHour, openSession, inSession(acquire), dropPolicy, keepAlive, expectHold(false),
			counted(1, "select count(*) from fence.leases where lock = $1 and check_at = 'infinity'"))},
	{"max_hold: a policy is newer than the lease", all(acquire, backdate, holdAnHour, renewLost, expectHeldOut)},
	{"max_hold: a policy is newer than a lease in a session",
		all(openSession, inSession(acquire), backdate, holdAnHour, keepAlive, sweep,
			counted(1, "select count(*) from fence.leases where lock = $1 and end_reason = 'expired'"), expectHeldOut)},
	{"max_hold: the session ends after it", all(holdAnHour, openSession, inSession(acquire), holdOut, endSession,
		expectHeldOut)},
	{"max_hold: a policy is no way back", all(holdAnHour, acquire, holdOut, under(store.Policy{MaxHold: store.MaxHoldMax}),
		renewLost, dropPolicy, renewLost, expectHeldOut)},
	{"max_hold: a keepalive comes back to a lease that was locked", all(openSession, inSession(acquire), holdAnHour,
		whileHeld("select from fence.leases where lock = $1 for update", keepAlive, expectHold(false)), keepAlive,
		expectHold(true))},
	{"max_hold: a policy is no way back in a session", all(holdAnHour, openSession, inSession(acquire), holdOut,
		under(store.Policy{MaxHold: store.MaxHoldMax}), keepAlive, expectHeldOut)},
	{"max_hold: a renewal does not wait for the fence", all(acquire, holdAnHour, whileHeld(lockFenceSQL, renewNewest),
		expectHold(true))},
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
	if err := expectLost(err, "lock", "expired"); err != nil {
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

// holdAnHour limits leases to an hour, which is as long as the TTL that they ask for.
var holdAnHour = under(store.Policy{MaxHold: time.Hour})

// holdOut is when the newest lease has been renewed until its hold_until.
var holdOut = execute(`
	update fence.leases l
	set granted_at = l.granted_at - interval '1 day', hold_until = now.at, expires_at = least(l.expires_at, now.at),
		check_at = now.at
	from (select clock_timestamp() as at) now
	where l.lock = $1 and l.fencing_token = $2 and l.hold_until is not null`)

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

// renewLost expects a renewal to say that the lease has expired.
func renewLost(ctx context.Context, s *fixture) error {
	_, err := s.Renew(ctx, s.newest().Ref(), 0)
	return expectLost(err, s.lock, "expired")
}

func keepAlive(ctx context.Context, s *fixture) error {
	_, err := s.KeepAlive(ctx, s.session.ID)
	return err
}

func dropPolicy(ctx context.Context, s *fixture) error { return s.DeletePolicy(ctx, string(s.lock)) }

// holdRuleCases: a lease that has reached its hold_until writes as another one that has expired.
var holdRuleCases = []ruleCase{
	{"max_hold: when it is over", given{holdAnHour, acquire, holdOut, sweep}, with(newest), "admitted"},
	{"max_hold: when it is over where a live lease is demanded", given{
		under(store.Policy{MaxHold: time.Hour, RequireLiveLease: true}), acquire, holdOut}, with(newest), "lease_expired"},
	{"max_hold: of a lease in a session where a live one is demanded", given{
		under(store.Policy{MaxHold: time.Hour, RequireLiveLease: true}), openSession, inSession(acquire), holdOut},
		with(newest), "lease_expired"},
	{"max_hold: of a lease in a session that has ended since",
		given{holdAnHour, openSession, inSession(acquire), holdOut, endSession}, with(newest), "admitted"},
	{"max_hold: of a lease whose session had expired",
		given{holdAnHour, openSession, inSession(acquire), expireSession, holdOut, sweep}, with(newest),
		"token_stale released"},
}
