package store_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/fencegate/fencegate/store"
)

// race is a grant that must wait for what is under way, and what is true when both are done. What is under way has gone so far that it
// can't be refused any more, and is committed only when the grant waits for it: where the grant does not, the trial fails.
type race struct {
	name  string
	given given
	under draft // the write that is under way
	grant step
}

// raceTrials are P3 and P1 where things happen at the same time.
func raceTrials() []trial {
	var trials []trial
	for _, c := range []race{
		{"P3: a subtree is granted during a write of a late holder below", given{onBelow("/x", acquire, expire)}, ofBelow("/x"), acquireSubtree},
		{"P3: a subtree is granted during a write with its token before", given{acquireSubtree, expire}, with(newest, at("/x")), acquireSubtree},
		{"P3: a reader of a subtree comes during a write of a late holder below", given{onBelow("/x", acquire, expire)}, ofBelow("/x"), shareSubtree},
		{"P3: a subtree is granted during a write with the token of a subtree below",
			given{onBelow("/x", acquireSubtree, expire)}, ofBelow("/x", at("/x/y")), acquireSubtree},
		{"P3: a subtree is granted during a write with the token of a subtree above",
			given{acquireSubtree, expire}, with(newest, at("/x/y")), onBelow("/x", acquireSubtree)},
		{"P3: a name is granted during a write with the token of a subtree above",
			given{acquireSubtree, expire}, with(newest, at("/x")), onBelow("/x", acquire)},
		{"P3: a name is granted alone during a write below with the subtree's token",
			given{acquireSubtree, expire}, with(newest, at("/x")), acquireNode},
	} {
		trials = append(trials, trial{c.name, c.run})
	}
	return append(trials,
		trial{"P3: a write below that waits for the grant of a subtree", func(ctx context.Context, s *stage) error {
			if err := s.do(ctx, onBelow("/x", acquire, expire)); err != nil {
				return err
			}
			return s.whileGranting(ctx, acquireSQL(s.lock, "subtree"), expectRejected(ofBelow("/x"), "superseded"))
		}},
		trial{"P3: a write below that waits for the grant of the first subtree of all", func(ctx context.Context, s *stage) error {
			if err := s.do(ctx, onBelow("/x", acquire, expire)); err != nil {
				return err
			}
			if _, err := s.sql.Exec(ctx, "delete from fence.subtrees"); err != nil {
				return err
			}
			return s.whileGranting(ctx, acquireSQL(s.lock, "subtree"), expectRejected(ofBelow("/x"), "superseded"))
		}},
		trial{"P3: a write with the token of a subtree that waits for its next grant", func(ctx context.Context, s *stage) error {
			if err := s.do(ctx, acquireSubtree, expire); err != nil {
				return err
			}
			return s.whileGranting(ctx, acquireSQL(s.lock, "subtree"), expectRejected(with(newest, at("/x")), "superseded"))
		}},
		trial{"P1: a name is asked for while the subtree is granted", func(ctx context.Context, s *stage) error {
			return s.whileGranting(ctx, acquireSQL(s.lock, "subtree"), expectHeldByTheNew(onBelow("/x/y", acquire)))
		}},
		trial{"P1: a subtree is asked for while a name in it is granted", func(ctx context.Context, s *stage) error {
			return s.whileGranting(ctx, acquireSQL(s.lock+"/x/y", "node"), expectHeldByTheNew(acquireSubtree))
		}},
		trial{"P1: a heartbeat in time that is not committed yet", keptAliveInTime},
		trial{"P5: a token that is granted after the write was sent", guessedToken},
		trial{"a lease that is granted in a session while that is ended", grantedWhileEnding},
	)
}

func TestRaces(t *testing.T) {
	t.Parallel()
	runTrials(t, raceTrials())
}

func (c race) run(ctx context.Context, s *stage) error {
	if err := s.do(ctx, c.given...); err != nil {
		return err
	}
	write := c.under(s)
	tx, err := s.sql.Begin(ctx)
	if err != nil {
		return err
	}
	defer tx.Rollback(ctx) //nolint:errcheck // it is committed below, or the trial failed
	if err := writeIn(ctx, tx, write); err != nil {
		return err
	}
	granted := make(chan error, 1)
	go func() { granted <- c.grant(ctx, s) }()
	if err := errors.Join(s.awaitBlocked(ctx, granted), tx.Commit(ctx)); err != nil {
		return err
	}
	if err := <-granted; err != nil {
		return err
	}
	if err := s.expectRecord(ctx, write, 1); err != nil {
		return err
	}
	// From here on the old token admits nothing.
	write.Key = "other"
	result, err := bySet(ctx, s.Store, write)
	if err == nil && !errors.Is(result.Err, store.ErrStaleToken) {
		err = fmt.Errorf("after the grant the old token is told %+v", result)
	}
	return err
}

// writeIn puts a record in a transaction.
func writeIn(ctx context.Context, tx pgx.Tx, write store.Write) error {
	var verdict string
	err := tx.QueryRow(ctx, `
		select verdict from fence.write_one($1, $2, null, null, '\x00', 'put', $3, $4, $5, null, null)`,
		write.Resource, write.Token, write.Key, write.Value, write.ContentType).Scan(&verdict)
	if err == nil && verdict != "admitted" {
		err = fmt.Errorf("the write that is to be under way is told %s", verdict)
	}
	return err
}

func acquireSQL(lock store.Name, scope string) string {
	return fmt.Sprintf("select fence.acquire(fence.lease_request('%s', 'the new one', 'exclusive', '%s', 3600000, null, null, null), 0, null)", lock, scope)
}

// whileGranting sends what waits for a grant that is under way.
func (s *stage) whileGranting(ctx context.Context, grant string, send func(ctx context.Context, s *stage) error) error {
	tx, err := s.sql.Begin(ctx)
	if err != nil {
		return err
	}
	defer tx.Rollback(ctx) //nolint:errcheck // it is committed below, or the trial failed
	if _, err := tx.Exec(ctx, grant); err != nil {
		return err
	}
	sent := make(chan error, 1)
	go func() { sent <- send(ctx, s) }()
	if err := errors.Join(s.awaitBlocked(ctx, sent), tx.Commit(ctx)); err != nil {
		return err
	}
	return <-sent
}

func expectRejected(draft draft, reason string) step {
	return func(ctx context.Context, s *stage) error {
		_, err := bySetVerdict(ctx, s.Store, draft(s), store.VerdictTokenStale, reason)
		return err
	}
}

func expectHeldByTheNew(ask step) step {
	return func(ctx context.Context, s *stage) error {
		err := ask(ctx, s)
		var held *store.HeldError
		if !errors.As(err, &held) || held.OwnerID != "the new one" {
			return fmt.Errorf("the acquire returned %w, want that it is held by the new one", err)
		}
		return nil
	}
}

// keptAliveInTime is a heartbeat that had the session in hand before it ran out: whoever sees that it has run out must wait for that.
func keptAliveInTime(ctx context.Context, s *stage) error {
	if err := s.do(ctx, openSession, inSession(acquire), expireSession); err != nil {
		return err
	}
	err := s.whileInHand(ctx, "select from fence.sessions s where s.session_id = (select l.session_id from fence.leases l where l.lock = $1) for update",
		func() error { return s.do(ctx, acquire) },
		func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "update fence.sessions set expires_at = clock_timestamp() + interval '1 hour' where session_id = $1", s.session.ID)
			return err
		})
	if !errors.Is(err, store.ErrLeaseHeld) {
		return fmt.Errorf("the acquire returned %w beside a session that was kept alive in time", err)
	}
	return nil
}

// guessedToken is a write with a token that is granted while the write waits. It does not keep the next grant of the subtree waiting, so
// it must not pass.
func guessedToken(ctx context.Context, s *stage) error {
	other := s.beside("-other")
	if err := errors.Join(other.do(ctx, acquire), s.do(ctx, onBelow("/x", acquire, release))); err != nil {
		return err
	}
	guess := s.below("/x").newest().Token + 1
	var results []store.Result
	err := whileBlocked(ctx, s.testbed, other.lock,
		func() (err error) {
			results, err = s.Write(ctx, []store.Write{with(newest, ownLeaseID)(other), with(token(guess), at("/x"))(s)})
			return err
		},
		func() error { return s.do(ctx, acquireSubtree) })
	if err != nil {
		return err
	}
	if got := brief(results[0]) + ", " + brief(results[1]); s.newest().Token != guess || got != "admitted v1 created, token_stale released" {
		return fmt.Errorf("the answers are %s, the token is %d and was guessed as %d", got, s.newest().Token, guess)
	}
	return nil
}

// grantedWhileEnding ends a session while a lease in it is granted: the end waits, and the lease ends with it.
func grantedWhileEnding(ctx context.Context, s *stage) error {
	if err := s.do(ctx, openSession); err != nil {
		return err
	}
	grant := fmt.Sprintf("select fence.acquire(fence.lease_request('%s', 'owner-1', 'exclusive', 'node', null, '%s', null, null), 0, null)",
		s.lock, uuid.UUID(s.session.ID))
	if err := s.whileGranting(ctx, grant, endSession); err != nil {
		return err
	}
	fence, err := s.Fence(ctx, s.lock)
	if err != nil || fence.Open || fence.GrantedToken == 0 {
		return fmt.Errorf("the fence is %+v (%w), want it closed behind a grant", fence, err)
	}
	return s.do(ctx, acquire)
}

// lineTrials are P8 for those who do not wait themselves: they stand behind all who do.
var lineTrials = []trial{
	{"P8: a try does not jump the queue", behindWaiter("", "exclusive", "node", acquire)},
	{"P8: a reader does not jump the queue of a writer", behindWaiter("", "exclusive", "node", share)},
	{"P8: a writer does not jump the queue of a reader", behindWaiter("", "shared", "node", acquire)},
	{"P8: a try for a name stands behind who waits for the subtree", behindWaiter("", "exclusive", "subtree", onBelow("/x", acquire))},
	{"P8: a try for a subtree stands behind who waits for a name", behindWaiter("/x", "exclusive", "node", acquireSubtree)},
	{"P8: readers do not stand behind readers", func(ctx context.Context, s *stage) error {
		return s.do(ctx, waiter("", "shared", "node", time.Minute), share)
	}},
	{"P8: nobody stands behind who is gone", func(ctx context.Context, s *stage) error {
		return s.do(ctx, waiter("", "exclusive", "node", 0), acquire)
	}},
}

// waiter stands in the line for a lock, in a process that was heard of and will be for so long. Nothing holds the lock.
func waiter(suffix store.Name, mode, scope string, lives time.Duration) step {
	return func(ctx context.Context, s *stage) error {
		gateway := uuid.New()
		_, err := s.sql.Exec(ctx, "select fence.heartbeat($1, $2)", gateway, lives.Milliseconds())
		if err != nil {
			return err
		}
		_, err = s.sql.Exec(ctx, `
			insert into fence.waiters (lock, gateway_id, owner_id, mode, scope, ttl_ms, queued_at, deadline_at)
			values ($1, $2, 'who waits', $3, $4, 1000, clock_timestamp(), clock_timestamp() + interval '1 hour')`,
			s.lock+suffix, gateway, mode, scope)
		if err == nil && scope == "subtree" {
			_, err = s.sql.Exec(ctx, "insert into fence.subtrees (name) values ($1) on conflict do nothing", s.lock+suffix)
		}
		return err
	}
}

func behindWaiter(suffix store.Name, mode, scope string, ask step) func(ctx context.Context, s *stage) error {
	return func(ctx context.Context, s *stage) error {
		if err := s.do(ctx, waiter(suffix, mode, scope, time.Hour)); err != nil {
			return err
		}
		return s.unchanged(ctx, func() error {
			err := ask(ctx, s)
			var held *store.HeldError
			if !errors.As(err, &held) || held.OwnerID != "" || held.Remaining != 0 {
				return fmt.Errorf("the acquire returned %w, want that others are before it", err)
			}
			return nil
		})
	}
}

func TestTriesStandBehind(t *testing.T) {
	t.Parallel()
	runTrials(t, lineTrials)
}
