package store_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/fencegate/fencegate/store"
)

func openSession(ctx context.Context, s *stage) error {
	session, err := s.CreateSession(ctx, store.SessionRequest{OwnerID: "owner-1", TTL: time.Hour})
	s.session = &session
	return err
}

// inSession makes a grant one in the session of the stage.
func inSession(grant step) step {
	return func(ctx context.Context, s *stage) error {
		s.sessionID = s.session.ID
		defer func() { s.sessionID = uuid.Nil }()
		return grant(ctx, s)
	}
}

func endSession(ctx context.Context, s *stage) error {
	_, err := s.EndSession(ctx, s.session.ID)
	return err
}

// beginToEndSession is the first half of endSession: the leases don't run any more, and their fences are not closed yet.
func beginToEndSession(ctx context.Context, s *stage) error {
	_, err := s.sql.Exec(ctx, "select fence.end_session($1)", s.session.ID)
	return err
}

// expireSession lets the time of the session run out.
func expireSession(ctx context.Context, s *stage) error {
	_, err := s.sql.Exec(ctx, "update fence.sessions set expires_at = clock_timestamp(), check_at = '-infinity' where session_id = $1", s.session.ID)
	return err
}

// sessionCases: a lease in a session writes as others do, until the session ends.
var sessionCases = []ruleCase{
	{"session: a lease in it", given{openSession, inSession(acquire)}, with(newest), store.Admitted, ""},
	{"session: a lease in it where a live one is demanded", given{requireLiveLease, openSession, inSession(acquire)}, with(newest), store.Admitted, ""},
	{"session: after its end", given{openSession, inSession(acquire), endSession}, with(newest), store.VerdictTokenStale, "released"},
	{"session: below, after its end", given{openSession, inSession(acquireSubtree), endSession},
		with(newest, at("/x")), store.VerdictTokenStale, "released"},
	{"session: when it has expired", given{openSession, inSession(acquire), expireSession}, with(newest), store.Admitted, ""},
	{"session: when it has expired where a live lease is demanded",
		given{requireLiveLease, openSession, inSession(acquire), expireSession}, with(newest), store.VerdictLeaseExpired, ""},
	{"session: when it has expired and was swept", given{openSession, inSession(acquire), expireSession, sweep},
		with(newest), store.VerdictTokenStale, "released"},
	{"session: below, when it has expired and was swept", given{openSession, inSession(acquireSubtree), expireSession, sweep},
		with(newest, at("/x")), store.VerdictTokenStale, "released"},
	{"session: below, after its end, while a name below was granted",
		given{openSession, inSession(acquireSubtree), beginToEndSession, onBelow("/x", acquire), endSession},
		with(newest, at("/y")), store.VerdictTokenStale, "released"},
	{"session: below, swept after a name below was granted",
		given{openSession, inSession(acquireSubtree), expireSession, onBelow("/x", acquire), sweep},
		with(newest, at("/y")), store.VerdictTokenStale, "released"},
	{"session: who was granted the lock while it ended", given{openSession, inSession(acquire), beginToEndSession, acquire, endSession},
		with(newest), store.Admitted, ""},
}

// sessionTrials are what leases in a session promise.
var sessionTrials = []trial{
	{"session: its leases last as long as it", func(ctx context.Context, s *stage) error {
		if err := s.do(ctx, openSession, inSession(acquire)); err != nil {
			return err
		}
		session, err := s.KeepAlive(ctx, s.session.ID)
		lock, lockErr := s.Lock(ctx, s.lock)
		switch {
		case err != nil || lockErr != nil:
			return errors.Join(err, lockErr)
		case !session.ExpiresAt.After(s.session.ExpiresAt), session.TTL != time.Hour:
			return fmt.Errorf("the session was kept alive until %s, before that until %s", session.ExpiresAt, s.session.ExpiresAt)
		case !s.newest().ExpiresAt.Equal(s.session.ExpiresAt), s.newest().TTL != time.Hour, !lock.Holder().ExpiresAt.Equal(session.ExpiresAt):
			return fmt.Errorf("the lease is %+v, and then %+v", s.newest(), lock.Holder())
		}
		return nil
	}},
	{"session: a lease in it is not renewed", func(ctx context.Context, s *stage) error {
		if err := s.do(ctx, openSession, inSession(acquire)); err != nil {
			return err
		}
		return s.unchanged(ctx, func() error {
			if _, err := s.Renew(ctx, s.newest().Ref(), 2*time.Hour); !errors.Is(err, store.ErrInvalid) {
				return fmt.Errorf("the renewal returned %w, want ErrInvalid", err)
			}
			return nil
		})
	}},
	{"session: a lease in it is released", func(ctx context.Context, s *stage) error {
		if err := s.do(ctx, openSession, inSession(acquire), release, acquire, endSession); err != nil {
			return err
		}
		return s.expectVerdict(ctx, bySet, with(newest)(s), store.Admitted, "")
	}},
	{"session: its end releases all", func(ctx context.Context, s *stage) error {
		if err := s.do(ctx, openSession, inSession(share), share); err != nil {
			return err
		}
		other := s.below("/x")
		other.session = s.session
		if err := other.do(ctx, inSession(acquire)); err != nil {
			return err
		}
		ended, err := s.EndSession(ctx, s.session.ID)
		if err != nil || ended != 2 {
			return fmt.Errorf("%d leases were released (%w), want 2", ended, err)
		}
		if err := errors.Join(s.expectStanding(ctx, s.leases[0].Ref(), "released", ""), other.do(ctx, acquire)); err != nil {
			return err
		}
		return s.expectHeldBy(ctx, acquire, "owner-2")
	}},
	{"session: over", func(ctx context.Context, s *stage) error {
		if err := s.do(ctx, openSession, endSession); err != nil {
			return err
		}
		return errors.Join(s.expectSessionLost(ctx, "released"), s.unchanged(ctx, func() error { return endSession(ctx, s) }))
	}},
	{"session: expired", func(ctx context.Context, s *stage) error {
		if err := s.do(ctx, openSession, expireSession); err != nil {
			return err
		}
		return errors.Join(s.expectSessionLost(ctx, "expired"), expectLost(endSession(ctx, s), "", "expired"), s.expectSessionLost(ctx, "expired"))
	}},
	{"session: unknown", func(ctx context.Context, s *stage) error {
		s.session = &store.Session{ID: uuid.New()}
		_, _, readErr := s.Store.Session(ctx, s.session.ID)
		_, keepErr := s.KeepAlive(ctx, s.session.ID)
		for i, err := range []error{s.do(ctx, inSession(acquire)), keepErr, endSession(ctx, s), readErr} {
			if !errors.Is(err, store.ErrNotFound) {
				return fmt.Errorf("%d: the answer is %w, want ErrNotFound", i, err)
			}
		}
		return nil
	}},
}

func TestLeasesInSessions(t *testing.T) {
	t.Parallel()
	runTrials(t, sessionTrials)
}

// expectSessionLost uses a session that is over: nothing comes of it, and nobody is told of a lock.
func (s *stage) expectSessionLost(ctx context.Context, reason string) error {
	return s.unchanged(ctx, func() error {
		_, err := s.KeepAlive(ctx, s.session.ID)
		return errors.Join(expectLost(err, "", reason), expectLost(s.do(ctx, inSession(acquire)), "", reason))
	})
}
