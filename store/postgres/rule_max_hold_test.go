package postgres_test

import (
	"context"
	"time"

	"github.com/fencegate/fencegate/store"
)

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
			expires_at = case when l.session_id is null then now.at - $3 * interval '1 millisecond' else l.expires_at end
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
