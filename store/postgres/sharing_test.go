package postgres_test

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/fencegate/fencegate/store"
)

// sharingCases are what leases beside each other promise. Owners are called after the index of their grant on a lock.
var sharingCases = []storeCase{
	// P1: locks that no two may hold at the same time.
	{"P1: no writer beside a reader", held(acquire, "owner-1", share)},
	{"P1: no reader beside a writer", held(share, "owner-1", acquire)},
	{"P1: no writer beside the readers that are left", held(acquire, "owner-2", share, share, expireFirst)},
	{"P1: of two in the way, the one that runs longer", held(acquire, "owner-1", share, share, renewFirst)},
	{"P1: no name below a subtree", held(onBelow("/x/y", acquire), "owner-1", acquireSubtree)},
	{"P1: no reader of a name below a subtree", held(onBelow("/x/y", share), "owner-1", acquireSubtree)},
	{"P1: no subtree below a subtree", held(onBelow("/x/y", acquireSubtree), "owner-1", acquireSubtree)},
	{"P1: no subtree above a name", held(acquireSubtree, "owner-1", onBelow("/x/y", acquire))},
	{"P1: no reader of a subtree above a name", held(shareSubtree, "owner-1", onBelow("/x/y", acquire))},
	{"P1: no subtree above a reader of a name", held(acquireSubtree, "owner-1", onBelow("/x/y", share))},
	{"P1: no subtree above a subtree", held(acquireSubtree, "owner-1", onBelow("/x/y", acquireSubtree))},
	{"P1: no name where its subtree is held", held(acquireNode, "owner-1", acquireSubtree)},
	{"P1: no subtree where the name is held", held(acquireSubtree, "owner-1", acquireNode)},
	{"P1: no writer of a name below readers of a subtree", held(onBelow("/x", acquire), "owner-1", shareSubtree)},
	{"P1: no writer beside the lease of a session", held(acquire, "owner-1", openSession, inSession(acquire))},

	// Grants that nothing is in the way of.
	{"P1: readers beside readers", all(share, share, share)},
	{"P1: a reader of a name below readers of a subtree", all(shareSubtree, onBelow("/x", share))},
	{"P1: readers of a subtree above a reader", all(onBelow("/x", share), shareSubtree)},
	{"P1: readers of a subtree beside readers of the name", all(share, shareSubtree)},
	{"P1: a name below a name", all(onBelow("-s", acquireSubtree), acquireNode, onBelow("/x", acquire))},
	{"P1: a name above a subtree", all(onBelow("/x", acquireSubtree), acquireNode)},
	{"P1: a name beside a subtree", all(acquireSubtree, onBelow("-x", acquire), onBelow("-x/y", acquire),
		onBelow("0", acquire))},
	{"P1: subtrees beside each other", all(onBelow("/x", acquireSubtree), onBelow("/y", acquireSubtree))},
	{"P1: subtrees beside each other, one a prefix of the other", all(onBelow("-x", acquireSubtree), acquireSubtree)},
	{"P7: a writer after readers have expired", all(share, expire, share, expire, acquire)},
	{"P7: a name below a subtree that has expired", all(acquireSubtree, expire, onBelow("/x", acquire))},
	{"P7: a subtree above a name that has expired", all(onBelow("/x", acquire, expire), acquireSubtree)},
	{"P7: a name after its session has expired", all(openSession, inSession(acquire), expireSession, acquire)},
	{"P7: a name below after the session of the subtree has expired",
		all(openSession, inSession(acquireSubtree), expireSession, onBelow("/x", acquire))},
	{"P7: a subtree above after the session of a name has expired",
		all(onBelow("/x", openSession, inSession(acquire), expireSession), acquireSubtree)},
	{"P7: a name after the release of the last reader", all(share, release, share, release, acquire)},

	{"P2: a sequence that lags behind the subtree above",
		lagging(given{acquireSubtree, expire}, onBelow("/x", acquire), (*fixture).newestBelow)},
	{"P2: a sequence that lags behind a name below",
		lagging(given{onBelow("/x", acquire, release)}, acquireSubtree, (*fixture).newest)},
	{"P6: a name that has expired, since the subtree above was granted", all(onBelow("/x", acquire, expire),
		acquireSubtree, status((*fixture).newestBelow, "superseded", "superseded"))},
	{"P6: a subtree that has expired, since a name below was granted", all(acquireSubtree, expire,
		onBelow("/x", acquire), status((*fixture).newest, "expired", ""))},
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
