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

// heldCase is a lease that keeps another from being granted.
type heldCase struct {
	name  string
	given given
	ask   step   // must be refused as held, and change nothing
	owner string // who is reported as the holder
}

// heldCases are P1: who may not hold locks at the same time. Owners are called after the place of their grant on a
// lock.
var heldCases = []heldCase{
	{"P1: no writer beside a reader", given{share}, acquire, "owner-1"},
	{"P1: no reader beside a writer", given{acquire}, share, "owner-1"},
	{"P1: no writer beside the readers that are left", given{share, share, expireFirst}, acquire, "owner-2"},
	{"P1: of two in the way, the one that runs longer", given{share, share, renewFirst}, acquire, "owner-1"},
	{"P1: no name below a subtree", given{acquireSubtree}, onBelow("/x/y", acquire), "owner-1"},
	{"P1: no reader of a name below a subtree", given{acquireSubtree}, onBelow("/x/y", share), "owner-1"},
	{"P1: no subtree below a subtree", given{acquireSubtree}, onBelow("/x/y", acquireSubtree), "owner-1"},
	{"P1: no subtree above a name", given{onBelow("/x/y", acquire)}, acquireSubtree, "owner-1"},
	{"P1: no reader of a subtree above a name", given{onBelow("/x/y", acquire)}, shareSubtree, "owner-1"},
	{"P1: no subtree above a reader of a name", given{onBelow("/x/y", share)}, acquireSubtree, "owner-1"},
	{"P1: no subtree above a subtree", given{onBelow("/x/y", acquireSubtree)}, acquireSubtree, "owner-1"},
	{"P1: no name where its subtree is held", given{acquireSubtree}, acquireNode, "owner-1"},
	{"P1: no subtree where the name is held", given{acquireNode}, acquireSubtree, "owner-1"},
	{"P1: no writer of a name below readers of a subtree", given{shareSubtree}, onBelow("/x", acquire), "owner-1"},
	{"P1: no writer beside the lease of a session", given{openSession, inSession(acquire)}, acquire, "owner-1"},
}

// freeCases are grants that nothing is in the way of.
var freeCases = []struct {
	name  string
	given given
}{
	{"P1: readers beside readers", given{share, share, share}},
	{"P1: a reader of a name below readers of a subtree", given{shareSubtree, onBelow("/x", share)}},
	{"P1: readers of a subtree above a reader", given{onBelow("/x", share), shareSubtree}},
	{"P1: readers of a subtree beside readers of the name", given{share, shareSubtree}},
	{"P1: a name below a name", given{onBelow("-s", acquireSubtree), acquireNode, onBelow("/x", acquire)}},
	{"P1: a name above a subtree", given{onBelow("/x", acquireSubtree), acquireNode}},
	{"P1: a name beside a subtree", given{acquireSubtree, onBelow("-x", acquire), onBelow("-x/y", acquire),
		onBelow("0", acquire)}},
	{"P1: subtrees beside each other", given{onBelow("/x", acquireSubtree), onBelow("/y", acquireSubtree)}},
	{"P1: subtrees beside each other, one a prefix of the other", given{onBelow("-x", acquireSubtree), acquireSubtree}},
	{"P7: a writer after readers have expired", given{share, expire, share, expire, acquire}},
	{"P7: a name below a subtree that has expired", given{acquireSubtree, expire, onBelow("/x", acquire)}},
	{"P7: a subtree above a name that has expired", given{onBelow("/x", acquire, expire), acquireSubtree}},
	{"P7: a name after its session has expired", given{openSession, inSession(acquire), expireSession, acquire}},
	{"P7: a name below after the session of the subtree has expired",
		given{openSession, inSession(acquireSubtree), expireSession, onBelow("/x", acquire)}},
	{"P7: a subtree above after the session of a name has expired",
		given{onBelow("/x", openSession, inSession(acquire), expireSession), acquireSubtree}},
	{"P7: a name after the release of the last reader", given{share, release, share, release, acquire}},
}

// sharingCases are what leases beside each other promise.
func sharingCases() []storeCase {
	cases := []storeCase{
		{"P2: a sequence that lags behind the subtree above",
			lagging(given{acquireSubtree, expire}, onBelow("/x", acquire), (*fixture).newestBelow)},
		{"P2: a sequence that lags behind a name below",
			lagging(given{onBelow("/x", acquire, release)}, acquireSubtree, (*fixture).newest)},
		{"P6: a name that has expired, since the subtree above was granted", func(ctx context.Context, s *fixture) error {
			if err := s.do(ctx, onBelow("/x", acquire, expire), acquireSubtree); err != nil {
				return err
			}
			return s.expectLeaseStatus(ctx, s.newestBelow().Ref(), "superseded", "superseded")
		}},
		{"P6: a subtree that has expired, since a name below was granted", func(ctx context.Context, s *fixture) error {
			if err := s.do(ctx, acquireSubtree, expire, onBelow("/x", acquire)); err != nil {
				return err
			}
			return s.expectLeaseStatus(ctx, s.newest().Ref(), "expired", "")
		}},
		{"a break ends all readers", breakAll},
		{"a release leaves other readers", func(ctx context.Context, s *fixture) error {
			if err := s.do(ctx, given{share, share, release}...); err != nil {
				return err
			}
			if _, err := s.Renew(ctx, s.leases[0].Ref(), 0); err != nil {
				return err
			}
			return s.expectHeldBy(ctx, acquire, "owner-1")
		}},
		{"a grant is closed by its own token alone", closedByItself},
	}
	for _, c := range heldCases {
		cases = append(cases, storeCase{c.name, func(ctx context.Context, s *fixture) error {
			if err := s.do(ctx, c.given...); err != nil {
				return err
			}
			return s.expectHeldBy(ctx, c.ask, c.owner)
		}})
	}
	for _, c := range freeCases {
		cases = append(cases, storeCase{c.name, func(ctx context.Context, s *fixture) error { return s.do(ctx, c.given...) }})
	}
	return cases
}

func TestSharing(t *testing.T) {
	t.Parallel()
	runCases(t, sharingCases())
}

func (s *fixture) newestBelow() store.Lease { return s.below("/x").newest() }

// expectHeldBy asks for a lease, which must change nothing, and compares who is reported as the holder.
func (s *fixture) expectHeldBy(ctx context.Context, ask step, owner string) error {
	return s.Unchanged(ctx, func() error {
		err := ask(ctx, s)
		var held *store.HeldError
		switch {
		case !errors.As(err, &held), !errors.Is(err, store.ErrLeaseHeld):
			return fmt.Errorf("the acquire returned %w, want a HeldError", err)
		case held.OwnerID != owner, held.QueueLength != 0, held.Remaining <= 0, held.Remaining > 2*time.Hour,
			held.ExpiresAt.IsZero():
			return fmt.Errorf("it is held by %q: %+v, want %q", held.OwnerID, *held, owner)
		}
		return nil
	})
}

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
func lagging(before given, ask step, granted func(*fixture) store.Lease) func(ctx context.Context, s *fixture) error {
	return func(ctx context.Context, s *fixture) error {
		if err := s.do(ctx, append(before, lag, ask)...); err != nil {
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

func lag(ctx context.Context, s *fixture) error {
	_, err := s.SQL.Exec(ctx, "select setval('fence.tokens', max(fencing_token) - 10) from fence.leases where lock ^@ $1", s.lock)
	return err
}

func breakAll(ctx context.Context, s *fixture) error {
	if err := s.do(ctx, given{share, share, share, expire}...); err != nil {
		return err
	}
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
	if err := s.do(ctx, given{acquireSubtree, expire, acquireSubtree}...); err != nil {
		return err
	}
	if _, err := s.SQL.Exec(ctx, "select fence.close_fence($1, $2)", s.lock, s.leases[0].Token); err != nil {
		return err
	}
	return s.do(ctx, wrote(with(newest), with(newest, at("/x"))))
}
