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

// strangers are callers who do not know all of the lease that they name. Owner and token are no secrets.
var strangers = map[string]func(ref *store.LeaseRef){
	"another owner":                  func(ref *store.LeaseRef) { ref.OwnerID = "somebody else" },
	"another lease_id":               func(ref *store.LeaseRef) { ref.ID = uuid.New() },
	"no lease_id":                    func(ref *store.LeaseRef) { ref.ID = uuid.Nil },
	"a token beyond":                 func(ref *store.LeaseRef) { ref.Token++ },
	"nothing but the token is right": func(ref *store.LeaseRef) { ref.OwnerID, ref.ID = "somebody else", uuid.New() },
}

// standings are how a lease can stand, and what its holder is told then; "" where the call succeeds.
var standings = []struct {
	name            string
	given           given
	renewal, ending string
}{
	{"live", given{acquire}, "", ""},
	{"expired", given{acquire, expire}, "expired", ""},
	{"expired and swept", given{acquire, expire, sweep}, "expired", ""},
	{"released", given{acquire, release}, "released", ""},
	{"broken", given{acquire, breakLock}, "broken", "broken"},
	{"broken after expiry", given{acquire, expire, breakLock}, "broken", "broken"},
	{"held out", given{holdAnHour, acquire, holdOut}, "max_hold", "max_hold"},
	{"held out and swept", given{holdAnHour, acquire, holdOut, sweep}, "max_hold", "max_hold"},
	{"expired and held out", given{holdAnHour, acquire, expireAndHoldOut}, "max_hold", "max_hold"},
	{"expired and held out and swept", given{holdAnHour, acquire, expireAndHoldOut, sweep, sweep}, "max_hold", "max_hold"},
}

// replacedStandings are how the first of two leases can stand.
var replacedStandings = []struct {
	name            string
	given           given
	renewal, ending string
}{
	{"expired and replaced", given{acquire, expire, acquire}, "superseded", "superseded"},
	{"swept and replaced", given{acquire, expire, sweep, acquire}, "superseded", "superseded"},
	{"released and replaced", given{acquire, release, acquire}, "released", ""},
	{"broken and replaced", given{acquire, breakLock, acquire}, "broken", "broken"},
	{"held out and replaced", given{holdAnHour, acquire, holdOut, acquire}, "max_hold", "max_hold"},
	{"expired, replaced and held out", given{holdAnHour, acquire, expire, acquire, firstHoldOut, sweep}, "superseded", "superseded"},
	{"forgotten", given{acquire, expire, acquire, forget}, "superseded", "superseded"},
	{"released and forgotten", given{acquire, release, acquire, forget}, "superseded", "superseded"},
}

// forget deletes all leases but the newest, as a sweep does in the end.
func forget(ctx context.Context, s *stage) error {
	_, err := s.sql.Exec(ctx, "delete from fence.leases where lock = $1 and fencing_token < $2", s.lock, s.newest().Token)
	return err
}

// standingTrials: who holds the lease may renew and release it, and nobody else (P6).
func standingTrials() []trial {
	var trials []trial
	for _, c := range standings {
		trials = append(trials, trial{"P6: the holder, " + c.name, func(ctx context.Context, s *stage) error {
			if err := s.do(ctx, c.given...); err != nil {
				return err
			}
			return s.expectStanding(ctx, s.newest().Ref(), c.renewal, c.ending)
		}})
		for who, change := range strangers {
			trials = append(trials, trial{"P6: " + who + ", " + c.name, func(ctx context.Context, s *stage) error {
				if err := s.do(ctx, c.given...); err != nil {
					return err
				}
				ref := s.newest().Ref()
				change(&ref)
				return s.expectStanding(ctx, ref, "mismatch", "mismatch")
			}})
		}
	}
	for _, c := range replacedStandings {
		trials = append(trials, trial{"P6: the holder before, " + c.name, func(ctx context.Context, s *stage) error {
			if err := s.do(ctx, c.given...); err != nil {
				return err
			}
			if err := s.expectStanding(ctx, s.leases[0].Ref(), c.renewal, c.ending); err != nil {
				return err
			}
			return s.expectOpen(ctx, true)
		}})
	}
	return append(trials,
		trial{"P6: the holder before, who names the new token", func(ctx context.Context, s *stage) error {
			if err := s.do(ctx, acquire, replace); err != nil {
				return err
			}
			ref := s.leases[0].Ref()
			ref.Token = s.newest().Token
			return s.expectStanding(ctx, ref, "mismatch", "mismatch")
		}},
		trial{"P6: the holder of another lock", func(ctx context.Context, s *stage) error {
			other := s.beside("-other")
			if err := errors.Join(s.do(ctx, acquire), other.do(ctx, acquire)); err != nil {
				return err
			}
			ref := other.newest().Ref()
			ref.Lock = s.lock
			return s.expectStanding(ctx, ref, "mismatch", "mismatch")
		}},
		trial{"P6: nulls match nothing", nullsMatchNothing})
}

// TestStandings holds leases of a name and of a subtree to the same.
func TestStandings(t *testing.T) {
	t.Parallel()
	trials := standingTrials()
	for _, c := range standingTrials() {
		trials = append(trials, trial{"subtree: " + c.name, func(ctx context.Context, s *stage) error {
			s.subtree = true
			return c.run(ctx, s)
		}})
	}
	runTrials(t, trials)
}

// expectStanding renews and then releases a lease. What is refused must change nothing.
func (s *stage) expectStanding(ctx context.Context, ref store.LeaseRef, renewal, ending string) error {
	renew := func() error {
		_, err := s.Renew(ctx, ref, time.Hour)
		return expectLost(err, ref.Lock, renewal)
	}
	end := func() error { return expectLost(s.Release(ctx, ref), ref.Lock, ending) }
	if renewal != "" {
		renew = s.unchangedBy(ctx, renew)
	}
	if ending != "" {
		end = s.unchangedBy(ctx, end)
	}
	if err := renew(); err != nil {
		return fmt.Errorf("renew: %w", err)
	}
	if err := end(); err != nil {
		return fmt.Errorf("release: %w", err)
	}
	return nil
}

func (s *stage) unchangedBy(ctx context.Context, what func() error) func() error {
	return func() error { return s.unchanged(ctx, what) }
}

// expectLost compares an error with a reason; "" is success.
func expectLost(err error, lock store.Name, reason string) error {
	var lost *store.LostError
	switch {
	case reason == "" && err == nil:
		return nil
	case reason != "" && errors.As(err, &lost) && errors.Is(err, store.ErrLeaseLost) && lost.Lock == lock && lost.Reason == reason:
		return nil
	case err == nil:
		return fmt.Errorf("it succeeded, want the reason %q", reason)
	}
	return fmt.Errorf("the answer is %w, want the reason %q", err, reason)
}

// nullsMatchNothing asks the function itself: a comparison with null is neither true nor false.
func nullsMatchNothing(ctx context.Context, s *stage) error {
	if err := s.do(ctx, acquire); err != nil {
		return err
	}
	ref := s.newest().Ref()
	for name, args := range map[string][]any{
		"owner_id": {ref.Lock, nil, ref.ID, ref.Token}, "lease_id": {ref.Lock, ref.OwnerID, nil, ref.Token},
		"fencing_token": {ref.Lock, ref.OwnerID, ref.ID, nil},
	} {
		var standing string
		err := s.sql.QueryRow(ctx, "select fence.lease_status($1, $2, $3, $4)", args...).Scan(&standing)
		if err != nil || standing != "mismatch" {
			return fmt.Errorf("without %s the standing is %q (%w), want mismatch", name, standing, err)
		}
	}
	return nil
}

func TestNoSuchLock(t *testing.T) {
	t.Parallel()
	b := newTestbed(t)
	ctx := t.Context()
	ref := store.LeaseRef{Lock: "nothing", OwnerID: "nobody", ID: uuid.New(), Token: 1}
	calls := map[string]func() error{
		"renew":   func() error { _, err := b.Renew(ctx, ref, 0); return err },
		"release": func() error { return b.Release(ctx, ref) },
		"break":   func() error { _, err := b.Break(ctx, ref.Lock, "why not"); return err },
		"lock":    func() error { _, err := b.Lock(ctx, ref.Lock); return err },
		"fence":   func() error { _, err := b.Fence(ctx, ref.Lock); return err },
		"record":  func() error { _, err := b.Record(ctx, ref.Lock, "key"); return err },
	}
	for name, call := range calls {
		err := b.unchanged(ctx, func() error {
			if err := call(); !errors.Is(err, store.ErrNotFound) {
				return fmt.Errorf("it returned %w, want ErrNotFound", err)
			}
			return nil
		})
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
