package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/fencegate/fencegate/store"
)

// strangers name a lease of which they do not know everything. Owner and token are no secrets.
var strangers = map[string]func(ref *store.LeaseRef){
	"another owner":                  func(ref *store.LeaseRef) { ref.OwnerID = "somebody else" },
	"another lease_id":               func(ref *store.LeaseRef) { ref.ID = uuid.New() },
	"no lease_id":                    func(ref *store.LeaseRef) { ref.ID = uuid.Nil },
	"a token beyond":                 func(ref *store.LeaseRef) { ref.Token++ },
	"nothing but the token is right": func(ref *store.LeaseRef) { ref.OwnerID, ref.ID = "somebody else", uuid.New() },
}

// leaseStatus has the reasons that the holder of a lease gets from a renewal and then a release; "" if the call
// succeeds.
type leaseStatus struct {
	name             string
	given            given
	renewal, release string
}

var leaseStatuses = []leaseStatus{
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

// replacedStatuses are of the first of two leases.
var replacedStatuses = []leaseStatus{
	{"expired and replaced", given{acquire, expire, acquire}, "superseded", "superseded"},
	{"swept and replaced", given{acquire, expire, sweep, acquire}, "superseded", "superseded"},
	{"released and replaced", given{acquire, release, acquire}, "released", ""},
	{"broken and replaced", given{acquire, breakLock, acquire}, "broken", "broken"},
	{"held out and replaced", given{holdAnHour, acquire, holdOut, acquire}, "max_hold", "max_hold"},
	{"expired, held out and replaced", given{holdAnHour, acquire, expireAndHoldOut, acquire}, "superseded", "superseded"},
	{"expired, replaced and held out", given{holdAnHour, acquire, expire, acquire, firstHoldOut, sweep}, "superseded",
		"superseded"},
	{"forgotten", given{acquire, expire, acquire, forget}, "superseded", "superseded"},
	{"released and forgotten", given{acquire, release, acquire, forget}, "superseded", "superseded"},
}

// forget deletes all leases but the newest, as a sweep does in the end.
var forget = execute("delete from fence.leases where lock = $1 and fencing_token < $2")

// leaseStatusCases: the holder may renew and release a lease of a name or of a subtree, and nobody else (P6).
func leaseStatusCases() []storeCase {
	var cases []storeCase
	for _, c := range leaseStatuses {
		cases = append(cases, storeCase{"P6: the holder, " + c.name,
			all(all(c.given...), status((*fixture).newest, c.renewal, c.release))})
		for stranger, change := range strangers {
			cases = append(cases, storeCase{"P6: " + stranger + ", " + c.name,
				all(all(c.given...), mismatch(func(s *fixture) store.LeaseRef {
					ref := s.newest().Ref()
					change(&ref)
					return ref
				}))})
		}
	}
	for _, c := range replacedStatuses {
		cases = append(cases, storeCase{"P6: the holder before, " + c.name,
			all(all(c.given...), status((*fixture).first, c.renewal, c.release), expectOpen(true))})
	}
	cases = append(cases,
		storeCase{"P6: the holder before, with the new token",
			all(acquire, replace, mismatch(func(s *fixture) store.LeaseRef {
				ref := s.leases[0].Ref()
				ref.Token = s.newest().Token
				return ref
			}))},
		storeCase{"P6: the holder of another lock", all(acquire, onBelow("-other", acquire),
			mismatch(func(s *fixture) store.LeaseRef {
				ref := s.below("-other").newest().Ref()
				ref.Lock = s.lock
				return ref
			}))},
		storeCase{"P6: nulls match nothing", all(acquire, nullsMatchNothing)})
	for _, c := range slices.Clone(cases) {
		cases = append(cases, storeCase{"subtree: " + c.name, all(inSubtree, c.run)})
	}
	return cases
}

// status expects what the holder of a lease gets from a renewal and then a release.
func status(of func(s *fixture) store.Lease, renewal, release string) step {
	return func(ctx context.Context, s *fixture) error {
		return s.expectLeaseStatus(ctx, of(s).Ref(), renewal, release)
	}
}

// mismatch expects that a reference is to no lease of the lock.
func mismatch(of func(s *fixture) store.LeaseRef) step {
	return func(ctx context.Context, s *fixture) error {
		return s.expectLeaseStatus(ctx, of(s), "mismatch", "mismatch")
	}
}

// expectLeaseStatus renews and then releases a lease. A call that is refused must change nothing.
func (s *fixture) expectLeaseStatus(ctx context.Context, ref store.LeaseRef, renewal, ending string) error {
	renew := func() error {
		_, err := s.Renew(ctx, ref, time.Hour)
		return expectLost(err, ref.Lock, renewal)
	}
	end := func() error { return expectLost(s.Release(ctx, ref), ref.Lock, ending) }
	for _, call := range []struct {
		do     func() error
		reason string
	}{{renew, renewal}, {end, ending}} {
		do := call.do
		if call.reason != "" {
			do = func() error { return s.Unchanged(ctx, call.do) }
		}
		if err := do(); err != nil {
			return err
		}
	}
	return nil
}

// expectLost compares an error with a reason; "" is success.
func expectLost(err error, lock store.Name, reason string) error {
	var lost *store.LostError
	switch {
	case reason == "" && err == nil:
		return nil
	case reason != "" && errors.As(err, &lost) && errors.Is(err, store.ErrLeaseLost) && lost.Lock == lock &&
		lost.Reason == reason:
		return nil
	case err == nil:
		return fmt.Errorf("the call succeeded, want it to fail with the reason %q", reason)
	}
	return fmt.Errorf("the call returned %w, want the reason %q", err, reason)
}

// nullsMatchNothing asks the function itself: a comparison with null is neither true nor false.
func nullsMatchNothing(ctx context.Context, s *fixture) error {
	ref := s.newest().Ref()
	for name, args := range map[string][]any{
		"owner_id": {ref.Lock, nil, ref.ID, ref.Token}, "lease_id": {ref.Lock, ref.OwnerID, nil, ref.Token},
		"fencing_token": {ref.Lock, ref.OwnerID, ref.ID, nil},
	} {
		var status string
		err := s.SQL.QueryRow(ctx, "select fence.lease_status($1, $2, $3, $4)", args...).Scan(&status)
		if err != nil || status != "mismatch" {
			return fmt.Errorf("without %s the status is %q (%w), want mismatch", name, status, err)
		}
	}
	return nil
}

// expectNoSuchLock expects that calls for a lock that was never granted return ErrNotFound.
func expectNoSuchLock(ctx context.Context, s *fixture) error {
	ref := store.LeaseRef{Lock: s.lock, OwnerID: "nobody", ID: uuid.New(), Token: 1}
	_, renewErr := s.Renew(ctx, ref, 0)
	_, breakErr := s.Break(ctx, ref.Lock, "why not")
	_, lockErr := s.Lock(ctx, ref.Lock)
	_, fenceErr := s.Fence(ctx, ref.Lock)
	_, recordErr := s.Record(ctx, ref.Lock, "key")
	for i, err := range []error{renewErr, s.Release(ctx, ref), breakErr, lockErr, fenceErr, recordErr} {
		if !errors.Is(err, store.ErrNotFound) {
			return fmt.Errorf("call %d returned %w, want ErrNotFound", i, err)
		}
	}
	return nil
}
