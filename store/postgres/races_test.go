package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/fencegate/fencegate/store"
)

// raceCases are P3 and P1 where things happen at the same time.
var raceCases = []storeCase{
	{"P3: a subtree is granted during a write of a late holder below", all(onBelow("/x", acquire, expire),
		grantedDuring(ofBelow("/x"), acquireSubtree))},
	{"P3: a subtree is granted during a write with its token before", all(acquireSubtree, expire,
		grantedDuring(with(newest, at("/x")), acquireSubtree))},
	{"P3: a reader of a subtree comes during a write of a late holder below", all(onBelow("/x", acquire, expire),
		grantedDuring(ofBelow("/x"), shareSubtree))},
	{"P3: a subtree is granted during a write with the token of a subtree below",
		all(onBelow("/x", acquireSubtree, expire), grantedDuring(ofBelow("/x", at("/x/y")), acquireSubtree))},
	{"P3: a subtree is granted during a write with the token of a subtree above", all(acquireSubtree, expire,
		grantedDuring(with(newest, at("/x/y")), onBelow("/x", acquireSubtree)))},
	{"P3: a name is granted during a write with the token of a subtree above", all(acquireSubtree, expire,
		grantedDuring(with(newest, at("/x")), onBelow("/x", acquire)))},
	{"P3: a name is granted alone during a write below with the subtree's token", all(acquireSubtree, expire,
		grantedDuring(with(newest, at("/x")), acquireNode))},
	{"P3: a write below that waits for the grant of a subtree", all(onBelow("/x", acquire, expire),
		whileGranted("", store.Subtree, rejectedMeanwhile(ofBelow("/x"), "superseded")))},
	{"P3: a subtree is granted during a write that adopts the token of a subtree below", all(onBelow("/x", acquireSubtree),
		wrote(ofBelow("/x", sequence(1), at("/x/a"))), onBelow("/x", expire),
		grantedDuring(ofBelow("/x", at("/x/y")), acquireSubtree))},
	{"P13: an acquire of a subtree waits for the lease that ran when all was locked", all(onBelow("/x", acquire), openSession,
		heldBy(expiringBelow("select from fence.sessions where session_id = $1 for update", inSession(acquireSubtree)), "owner-1"),
		acquireSubtree)},
	{"P13: a waiter for a subtree waits for the lease that ran when all was locked", grantedAfterTheNextLook},
	{"P3: a write with the token of a subtree that waits for its next grant", all(acquireSubtree, expire,
		whileGranted("", store.Subtree, rejectedMeanwhile(with(newest, at("/x")), "superseded")))},
	{"step 3: a write with the token of a subtree that waits for its release", all(acquireSubtree,
		whileReleased(rejectedMeanwhile(with(newest, at("/x")), "released")))},
	{"P3: a write with the token of a subtree that waits for a grant of the name alone", all(acquireSubtree, expire,
		whileGranted("", store.Node, rejectedMeanwhile(with(newest, at("/x")), "released")))},
	{"P1: a name is asked for while the subtree is granted",
		whileGranted("", store.Subtree, heldBy(onBelow("/x/y", acquire), "the new one"))},
	{"P1: a subtree is asked for while a name in it is granted",
		whileGranted("/x/y", store.Node, heldBy(acquireSubtree, "the new one"))},
	{"a set of writes locks fences in the order of their names", all(onBelow("/1", acquire), onBelow("/2", acquire),
		inOrder(setOf(setCase{ofBelow("/2"), "admitted v1 created"}, setCase{ofBelow("/1"), "admitted v1 created"})))},
	{"a set with a lease_id locks fences in the order of their names", all(onBelow("/1", acquire), onBelow("/2", acquire),
		inOrder(setOf(setCase{ofBelow("/2"), "admitted v1 created"}, setCase{func(s *fixture) store.Write {
			return with(newest, ownLeaseID)(s.below("/1"))
		}, "admitted v1 created"})))},
	{"P1: a heartbeat in time that is not committed yet", all(openSession, inSession(acquire), expireSession,
		keptAliveInTime)},
	{"P5: a token that is granted after the write was sent", guessedToken},
	{"a lease that is granted in a session while that is ended", all(openSession, grantedWhileEnding)},
	{"a session that expires while an acquire in it waits", all(acquire, expire, openSession,
		expiringMeanwhile(func(ctx context.Context, s *fixture) error {
			return expectLost(s.do(ctx, inSession(acquire)), "", "expired")
		}))},
	{"a session that expires while the turn of its waiter comes", all(acquire, openSession, grantedTooLate)},
}

// grantedDuring is a grant that must wait for a write that can't be refused any more. The write is committed only once
// the grant waits. Then the record is there, and the write's token admits nothing more.
func grantedDuring(spec writeSpec, grant step) step {
	return func(ctx context.Context, s *fixture) error {
		write := spec(s)
		begin := func(tx pgx.Tx) error { return writeIn(ctx, tx, write) }
		if err := s.whileLocked(ctx, begin, func() error { return grant(ctx, s) }, nil); err != nil {
			return err
		}
		if err := s.expectRecord(ctx, write, 1); err != nil {
			return err
		}
		write.Key, write.Sequence = "other", new(int64(1)) // only the grant is in its way
		result, err := bySet(ctx, s.Store, write)
		if err == nil && !errors.Is(result.Err, store.ErrStaleToken) {
			err = fmt.Errorf("after the grant, a write with the old token is answered %+v, want token_stale", result)
		}
		return err
	}
}

// expiringBelow lets the lease on the name /x run out while the call, which has taken the locks for a subtree, waits for
// another row, which is locked by a statement with the session in $1.
func expiringBelow(lock string, call step) step {
	return func(ctx context.Context, s *fixture) error {
		return s.whileLocked(ctx, executing(ctx, lock, s.session.ID), func() error { return call(ctx, s) },
			func(pgx.Tx) error { return s.do(ctx, onBelow("/x", expire)) })
	}
}

// grantedAfterTheNextLook is a waiter for a subtree whose gateway first takes one out that has lost its session.
func grantedAfterTheNextLook(ctx context.Context, s *fixture) error {
	gateway := uuid.New()
	wait := waiterAt(gateway, "", "exclusive", "subtree", time.Hour)
	lose := func(ctx context.Context, s *fixture) error {
		_, err := s.SQL.Exec(ctx, "update fence.waiters set session_id = $2, session_until = '-infinity' where lock = $1", s.lock,
			s.session.ID)
		return err
	}
	var results []store.QueueResult
	grantNext := func(ctx context.Context, s *fixture) (err error) {
		results, err = s.GrantNext(ctx, gateway, s.lock, store.Subtree, time.Minute)
		return err
	}
	err := s.do(ctx, onBelow("/x", acquire), openSession, wait, lose, wait,
		expiringBelow("select from fence.waiters where session_id = $1 for update", grantNext))
	if err != nil || len(results) != 2 || expectLost(results[0].Err, "", "expired") != nil || results[1].Done {
		return fmt.Errorf("the call returned %+v (%w), want a lost session and no lease", results, err)
	}
	if err := grantNext(ctx, s); err != nil || len(results) != 1 || results[0].Lease.Token == 0 {
		return fmt.Errorf("the next call returned %+v (%w), want a lease", results, err)
	}
	return nil
}

// writeIn puts a record in a transaction.
func writeIn(ctx context.Context, tx pgx.Tx, write store.Write) error {
	var verdict string
	err := tx.QueryRow(ctx, `
		select verdict from fence.write_one($1, $2, null, null, '\x00', 'put', $3, $4, $5, null, null)`,
		write.Resource, write.Token, write.Key, write.Value, write.ContentType).Scan(&verdict)
	if err == nil && verdict != "admitted" {
		err = fmt.Errorf("the write that is to be under way is %s, want admitted", verdict)
	}
	return err
}

// heldBy expects that an acquire is refused because of an owner's lease, or "" because others wait.
func heldBy(acquire step, owner string) step {
	return func(ctx context.Context, s *fixture) error {
		err := acquire(ctx, s)
		var held *store.HeldError
		if !errors.As(err, &held) || !errors.Is(err, store.ErrLeaseHeld) || held.OwnerID != owner {
			return fmt.Errorf("the acquire returned %w, want that the lock is held by %q", err, owner)
		}
		byLease := held.QueueLength == 0 && held.Remaining > 0 && held.Remaining <= 2*time.Hour && !held.ExpiresAt.IsZero()
		if byLease != (owner != "") || owner == "" && held.Remaining != 0 {
			return fmt.Errorf("the acquire returned %+v, want that the lock is held by %q", *held, owner)
		}
		return nil
	}
}

// inOrder expects that a call that waits for the fence /1 has not locked the fence /2.
func inOrder(call step) step {
	return func(ctx context.Context, s *fixture) error {
		return s.whileLocked(ctx, executing(ctx, lockFenceSQL, s.lock+"/1"), func() error { return call(ctx, s) },
			executing(ctx, lockFenceSQL+" nowait", s.lock+"/2"))
	}
}

// keptAliveInTime is a heartbeat that had locked the lease before it ran out: an acquire must wait for it.
func keptAliveInTime(ctx context.Context, s *fixture) error {
	lock := executing(ctx, "select from fence.leases l where l.session_id = $1 for update", s.session.ID)
	err := s.whileLocked(ctx, lock, func() error { return acquire(ctx, s) }, executing(ctx,
		"update fence.leases set expires_at = clock_timestamp() + interval '1 hour' where session_id = $1", s.session.ID))
	if !errors.Is(err, store.ErrLeaseHeld) {
		return fmt.Errorf("the acquire returned %w beside a session that was kept alive in time", err)
	}
	return nil
}

// guessedToken is a transaction with a token that is granted while it waits, with its fence to be locked afterwards. It did
// not make the next grant of the subtree wait, so it must not pass.
func guessedToken(ctx context.Context, s *fixture) error {
	other := s.below("-other")
	if err := errors.Join(other.do(ctx, acquire), s.do(ctx, onBelow("/x", acquire, release))); err != nil {
		return err
	}
	guess := s.below("/x").newest().Token + 1
	var verdict string
	err := s.whileFenceIsLocked(ctx, other.lock,
		func() error {
			return s.SQL.QueryRow(ctx, `select verdict || ' ' || reason from fence.transact(array[$1, $2], array[$3, $4]::bigint[],
				'{1,1}', '{null,null}', '', '{}', '{}', '{}', '{}', '{}', '{}')`,
				other.lock, s.lock+"/x", other.newest().Token, guess).Scan(&verdict)
		},
		func() error { return acquireSubtree(ctx, s) })
	if err != nil {
		return err
	}
	if s.newest().Token != guess || verdict != "token_stale released" {
		return fmt.Errorf("the answer is %s; the token is %d, and the guess was %d", verdict, s.newest().Token, guess)
	}
	return nil
}

// grantedWhileEnding ends a session while a lease in it is granted: the end waits, and the lease ends with it.
func grantedWhileEnding(ctx context.Context, s *fixture) error {
	grant := executing(ctx,
		"select fence.acquire_lease(fence.lease_request($1, 'owner-1', 'exclusive', 'node', null, $2, null, null), 0, null, true)",
		s.lock, s.session.ID)
	if err := s.whileLocked(ctx, grant, func() error { return endSession(ctx, s) }, nil); err != nil {
		return err
	}
	fence, err := s.Fence(ctx, s.lock)
	if err != nil || fence.Open || fence.GrantedToken == 0 {
		return fmt.Errorf("the fence is %+v (%w), want it closed behind a grant", fence, err)
	}
	return acquire(ctx, s)
}

// expiringMeanwhile has the session expire while a call waits for the expired lease on the lock.
func expiringMeanwhile(call step) step {
	return func(ctx context.Context, s *fixture) error {
		_, err := s.SQL.Exec(ctx, "with session as (update fence.sessions set expires_at = clock_timestamp() + interval '1 second' "+
			"where session_id = $1 returning *) update fence.waiters w set session_until = s.expires_at from session s "+
			"where w.session_id = s.session_id", s.session.ID)
		if err != nil {
			return err
		}
		lease := executing(ctx, "select from fence.leases where lock = $1 for update", s.lock)
		return s.whileLocked(ctx, lease, func() error { return call(ctx, s) }, executing(ctx, "select "+
			"pg_sleep(extract(epoch from expires_at - clock_timestamp())) from fence.sessions where session_id = $1",
			s.session.ID))
	}
}

// grantedTooLate expects that a waiter whose session expires before its grant is granted nothing, and loses its place.
func grantedTooLate(ctx context.Context, s *fixture) error {
	gateway := uuid.New()
	if err := s.do(ctx, inSession(joinQueueAt(gateway)), expire); err != nil {
		return err
	}
	var results []store.QueueResult
	grantNext := func(ctx context.Context, s *fixture) (err error) {
		results, err = s.GrantNext(ctx, gateway, s.lock, store.Node, time.Minute)
		return err
	}
	if err := s.do(ctx, expiringMeanwhile(grantNext)); err != nil || len(results) != 1 {
		return fmt.Errorf("the call returned %+v (%w), want one result", results, err)
	}
	return expectLost(results[0].Err, "", "expired")
}

// queueCases are P8 for acquires that do not wait: they are behind all that do.
var queueCases = []storeCase{
	{"P8: a try does not jump the queue", behindWaiter("", "exclusive", "node", acquire)},
	{"P8: a reader does not jump the queue of a writer", behindWaiter("", "exclusive", "node", share)},
	{"P8: a writer does not jump the queue of a reader", behindWaiter("", "shared", "node", acquire)},
	{"P8: a try for a name stands behind a waiter for the subtree", behindWaiter("", "exclusive", "subtree",
		onBelow("/x", acquire))},
	{"P8: a try for a subtree stands behind a waiter for a name",
		behindWaiter("/x", "exclusive", "node", acquireSubtree)},
	{"P8: nobody stands behind a waiter that is gone", all(waiter("", "exclusive", "node", 0), acquire)},
}

// waiter is in the queue of a lock that nothing holds, at a gateway that counts as alive for a time.
func waiter(suffix store.Name, mode, scope string, alive time.Duration) step {
	return func(ctx context.Context, s *fixture) error {
		return waiterAt(uuid.New(), suffix, mode, scope, alive)(ctx, s)
	}
}

// waiterAt is a waiter at a certain gateway.
func waiterAt(gateway uuid.UUID, suffix store.Name, mode, scope string, alive time.Duration) step {
	return func(ctx context.Context, s *fixture) error {
		_, err := s.SQL.Exec(ctx, "select fence.heartbeat($1, $2)", gateway, alive.Milliseconds())
		if err != nil {
			return err
		}
		_, err = s.SQL.Exec(ctx, `
			insert into fence.waiters (lock, gateway_id, owner_id, mode, scope, ttl_ms, queued_at, deadline_at)
			values ($1, $2, 'waiter', $3, $4, 1000, clock_timestamp(), clock_timestamp() + interval '1 hour')`,
			s.lock+suffix, gateway, mode, scope)
		if err == nil && scope == "subtree" {
			_, err = s.SQL.Exec(ctx, requestSubtreeSQL, s.lock+suffix)
		}
		return err
	}
}

// behindWaiter expects that a waiter keeps another from being granted a lock that is free.
func behindWaiter(suffix store.Name, mode, scope string, acquire step) step {
	return all(waiter(suffix, mode, scope, time.Hour), changingNothing(heldBy(acquire, "")))
}

// sharingCases are what leases beside each other promise. Owners are called after the index of their grant on a lock.
var sharingCases = []storeCase{
	// P1: locks that no two may hold at the same time.
	{"P1: no writer beside a reader", held(acquire, "owner-1", share)},
	{"P1: no writer beside the readers that are left", held(acquire, "owner-2", share, share, expireFirst)},
	{"P1: of two in the way, the one that runs longer", held(acquire, "owner-1", share, share, renewFirst)},
	{"P1: no name below a subtree", held(onBelow("/x/y", acquire), "owner-1", acquireSubtree)},
	{"P1: no subtree above a name", held(acquireSubtree, "owner-1", onBelow("/x/y", acquire))},
	{"P1: no subtree above a reader of a name", held(acquireSubtree, "owner-1", onBelow("/x/y", share))},
	{"P1: no subtree above a subtree", held(acquireSubtree, "owner-1", onBelow("/x/y", acquireSubtree))},
	{"P1: no writer of a name below readers of a subtree", held(onBelow("/x", acquire), "owner-1", shareSubtree)},

	// Grants that nothing is in the way of.
	{"P1: readers beside readers", all(share, share, share, shareSubtree)},
	{"P1: a name below a name", all(acquireSubtree, release, acquireNode, onBelow("/x", acquire))},
	{"P1: subtrees beside each other, one a prefix of the other", all(onBelow("-x", acquireSubtree), acquireSubtree)},
	{"P7: a name after its session has expired", all(openSession, inSession(acquire), expireSession, acquire)},
	{"P7: a name below after the session of the subtree has expired",
		all(openSession, inSession(acquireSubtree), expireSession, onBelow("/x", acquire))},

	{"P2: a sequence that lags behind the subtree above",
		lagging(given{acquireSubtree, expire}, onBelow("/x", acquire), (*fixture).newestBelow)},
	{"P2: a sequence that lags behind a name below",
		lagging(given{onBelow("/x", acquire, release)}, acquireSubtree, (*fixture).newest)},
	{"P6: a name that has expired, since the subtree above was granted", all(onBelow("/x", acquire, expire),
		acquireSubtree, status((*fixture).newestBelow, "superseded", "superseded"))},
	{"a break ends all readers", all(share, share, share, expire, breakAll)},
	{"a grant is closed by its own token alone", all(acquireSubtree, expire, acquireSubtree, closedByItself)},
}

// held expects that an acquire after the steps is refused because of an owner's lease, and changes nothing.
func held(acquire step, owner string, steps ...step) step {
	return all(all(steps...), changingNothing(heldBy(acquire, owner)))
}

func (s *fixture) newestBelow() store.Lease { return s.below("/x").newest() }

func expireFirst(ctx context.Context, s *fixture) error {
	_, err := s.SQL.Exec(ctx, "update fence.leases set expires_at = clock_timestamp(), check_at = '-infinity' where "+
		"lock = $1 and fencing_token = $2",
		s.lock, s.leases[0].Token)
	return err
}

func renewFirst(ctx context.Context, s *fixture) error {
	_, err := s.Renew(ctx, s.leases[0].Ref(), 2*time.Hour)
	return err
}

// lagging takes the sequence of tokens back before a grant, whose token must be greater all the same.
func lagging(before given, acquire step, granted func(*fixture) store.Lease) step {
	return func(ctx context.Context, s *fixture) error {
		if err := s.do(ctx, append(before, lag, acquire)...); err != nil {
			return err
		}
		newest := int64(0)
		if err := s.SQL.QueryRow(ctx, "select max(fencing_token) from fence.leases where lock ^@ $1",
			s.lock).Scan(&newest); err != nil {
			return err
		}
		if granted(s).Token != newest {
			return fmt.Errorf("token %d was granted, and before that %d", granted(s).Token, newest)
		}
		return nil
	}
}

var lag = execute("select setval('fence.tokens', max(fencing_token) - 10) from fence.leases where lock ^@ $1")

func breakAll(ctx context.Context, s *fixture) error {
	ended, err := s.Break(ctx, s.lock, "all of them")
	if err != nil || ended.Token != s.leases[1].Token || ended.ID != uuid.Nil {
		return fmt.Errorf("broken is %+v (%w), want the second of %+v", ended, err, s.leases)
	}
	for i, reason := range []string{"broken", "broken", "expired"} {
		_, err := s.Renew(ctx, s.leases[i].Ref(), 0)
		if err := expectLost(err, s.lock, reason); err != nil {
			return fmt.Errorf("reader %d: %w", i+1, err)
		}
	}
	return s.do(ctx, acquire)
}

// closedByItself asks the function itself: nobody else's end closes the fence of the newest grant.
func closedByItself(ctx context.Context, s *fixture) error {
	if _, err := s.SQL.Exec(ctx, "select fence.close_fence($1, $2)", s.lock, s.leases[0].Token); err != nil {
		return err
	}
	return s.do(ctx, wrote(with(newest), with(newest, at("/x"))))
}
