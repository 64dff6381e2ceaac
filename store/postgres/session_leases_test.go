package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/fencegate/fencegate/store"
)

func openSession(ctx context.Context, s *fixture) error {
	session, err := s.CreateSession(ctx, store.SessionRequest{OwnerID: "owner-1", TTL: time.Hour})
	s.session = &session
	return err
}

// inSession makes a grant one in the session of the fixture.
func inSession(grant step) step {
	return func(ctx context.Context, s *fixture) error {
		s.sessionID = s.session.ID
		defer func() { s.sessionID = uuid.Nil }()
		return grant(ctx, s)
	}
}

func endSession(ctx context.Context, s *fixture) error {
	_, err := s.EndSession(ctx, s.session.ID)
	return err
}

// beginToEndSession is the first half of endSession: the leases don't run any more, and their fences are not closed
// yet.
func beginToEndSession(ctx context.Context, s *fixture) error {
	_, err := s.SQL.Exec(ctx, "select fence.end_session($1)", s.session.ID)
	return err
}

const expireSessionSQL = "update fence.sessions set expires_at = clock_timestamp(), check_at = '-infinity' where " +
	"session_id = $1"

// expireSession lets the time of the session run out.
func expireSession(ctx context.Context, s *fixture) error {
	_, err := s.SQL.Exec(ctx, expireSessionSQL, s.session.ID)
	return err
}

// sessionRuleCases: a lease in a session writes as others do, until the session ends.
var sessionRuleCases = []ruleCase{
	{"session: a lease in it", given{openSession, inSession(acquire)}, with(newest), "admitted"},
	{"session: a lease in it where a live one is demanded", given{requireLiveLease, openSession, inSession(acquire)},
		with(newest), "admitted"},
	{"session: after its end", given{openSession, inSession(acquire), endSession}, with(newest), "token_stale released"},
	{"session: below, after its end", given{openSession, inSession(acquireSubtree), endSession},
		with(newest, at("/x")), "token_stale released"},
	{"session: when it has expired", given{openSession, inSession(acquire), expireSession}, with(newest), "admitted"},
	{"session: when it has expired where a live lease is demanded",
		given{requireLiveLease, openSession, inSession(acquire), expireSession}, with(newest), "lease_expired"},
	{"session: when it has expired and was swept", given{openSession, inSession(acquire), expireSession, sweep},
		with(newest), "token_stale released"},
	{"session: below, when it has expired and was swept",
		given{openSession, inSession(acquireSubtree), expireSession, sweep}, with(newest, at("/x")), "token_stale released"},
	{"session: below, after its end, while a name below was granted",
		given{openSession, inSession(acquireSubtree), beginToEndSession, onBelow("/x", acquire), endSession},
		with(newest, at("/y")), "token_stale released"},
	{"session: below, swept after a name below was granted",
		given{openSession, inSession(acquireSubtree), expireSession, onBelow("/x", acquire), sweep},
		with(newest, at("/y")), "token_stale released"},
	{"session: a holder that was granted the lock while it ended",
		given{openSession, inSession(acquire), beginToEndSession, acquire, endSession}, with(newest), "admitted"},
}

// sessionCases are promises of leases in a session that need more than the calls of the conformance suite.
var sessionCases = []storeCase{
	{"session: a lease in it is not renewed", all(openSession, inSession(acquire),
		changingNothing(func(ctx context.Context, s *fixture) error {
			if _, err := s.Renew(ctx, s.newest().Ref(), 2*time.Hour); !errors.Is(err, store.ErrInvalid) {
				return fmt.Errorf("the renewal returned %w, want ErrInvalid", err)
			}
			return nil
		}))},
	{"session: a lease in it is released", all(openSession, inSession(acquire), release, acquire, endSession,
		wrote(with(newest)))},
	{"session: over", all(openSession, endSession, changingNothing(sessionLost("released"), endSession))},
	{"session: expired", all(openSession, expireSession, changingNothing(sessionLost("expired")),
		func(ctx context.Context, s *fixture) error {
			return expectLost(endSession(ctx, s), "", "expired")
		}, changingNothing(sessionLost("expired")))},
}

// sessionLost uses a session that is over. Both calls return the reason, and name no lock.
func sessionLost(reason string) step {
	return func(ctx context.Context, s *fixture) error {
		_, err := s.KeepAlive(ctx, s.session.ID)
		return errors.Join(expectLost(err, "", reason), expectLost(s.do(ctx, inSession(acquire)), "", reason))
	}
}
