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
	{"held out", given{holdAnHour, acquire, holdOut}, "expired", ""},
}

// replacedStatuses are of the first of two leases.
var replacedStatuses = []leaseStatus{
	{"expired and replaced", given{acquire, expire, acquire}, "superseded", "superseded"},
	{"swept and replaced", given{acquire, expire, sweep, acquire}, "superseded", "superseded"},
	{"released and replaced", given{acquire, release, acquire}, "released", ""},
	{"broken and replaced", given{acquire, breakLock, acquire}, "broken", "broken"},
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

// passCases are about releases that hand the lock over to the waiters of a gateway, which the releases answer for.
var passCases = []storeCase{
	{"passed: to the first waiter", all(alone, acquire, waitsHere, waitsHere,
		execute("update fence.waiters w set ttl_ms = 2000 where w.ticket = (select max(ticket) from fence.waiters where lock = $1)"),
		toPass.is("granted"), grantedTogether,
		counted(1, "select count(*) from fence.waiters where lock = $1"),
		counted(1, "select count(*) from fence.leases l join fence.leases p on p.lock = l.lock and p.ended_at <= l.granted_at "+
			"where l.lock = $1 and l.ended_at is null and l.expires_at = l.granted_at + interval '1 second' "+
			"and l.check_at = l.expires_at and l.waited_ms > 0 and p.end_reason = 'released' and l.xmin = p.xmin"),
		expectOpen(true), rejected(with(first), "token_stale superseded"), wrote(with(newest, sequence(1))))},
	{"passed: the token is greater than what was written elsewhere", all(alone, acquire, waitsHere,
		execute("update fence.fences set last_token = $2 + 1000000 where resource = $1"), toPass.is("granted"),
		grantedTogether, wrote(with(newest)))},
	{"passed: the next waiter's gateway is notified", all(alone, acquire, waitsHere, waitsThere("exclusive"),
		toPass.tells("granted", wakeThere))},
	{"passed: to readers up to a writer", all(alone, acquire, waitsHereAs("shared"), waitsHereAs("shared"), waitsHere,
		waitsHereAs("shared"), toPass.is("granted"), expectOpen(false),
		counted(2, "select count(*) from fence.leases where lock = $1 and ended_at is null"),
		counted(2, "select count(*) from fence.waiters where lock = $1"))},
	{"passed: beside a reader elsewhere", all(alone, acquire, waitsThere("shared"), waitsHereAs("shared"),
		toPass.tells("granted", wakeThereAt))},
	{"not passed: readers after a writer elsewhere", all(alone, acquire, waitsThere("exclusive"), waitsHereAs("shared"),
		toPass.is("nothing"), expectOpen(false))},
	{"passed: after one whose time is over", all(alone, acquire, waitsHere,
		execute("update fence.waiters set deadline_at = clock_timestamp() where lock = $1"), waitsHere, toPass.is("granted"),
		counted(1, "select count(*) from fence.waiters where lock = $1 and deadline_at < clock_timestamp()"))},
	{"passed: to one in a session", all(alone, openSession, acquire, waitsHere, execute(joinSessionSQL), toPass.is("granted"),
		counted(1, "select count(*) from fence.leases l join fence.sessions s using (session_id) "+
			"where l.lock = $1 and l.ended_at is null and l.expires_at = s.expires_at"))},
	{"passed: after one whose session has ended", all(alone, openSession, acquire, waitsHere, execute(joinSessionSQL), waitsHere,
		execute("update fence.sessions set ended_at = clock_timestamp(), end_reason = 'released' where session_id = "+
			"(select session_id from fence.waiters where lock = $1 and session_id is not null)"),
		toPass.is("session_lost"), counted(1, "select count(*) from fence.leases where lock = $1 and ended_at is null"),
		counted(0, "select count(*) from fence.waiters where lock = $1"))},
	{"passed: a lease that has expired", all(alone, acquire, expire, waitsHere, toPass.is("granted"))},
	{"passed: a reader's lease", all(alone, share, waitsHere, toPass.is("granted"))},
	{"passed: a lease for the subtree", all(alone, acquireSubtree, writesBelow(true), waitsHere, toPass.is("granted"), writesBelow(false))},

	{"not passed: nobody waits", all(alone, acquire, toPass.is("nothing"), expectOpen(false))},
	{"not passed: another gateway's waiter is first", all(alone, acquire, waitsThere("exclusive"), waitsHere,
		toPass.tells("nothing", wakeThereAt), expectOpen(false))},
	{"not passed: a writer after a reader elsewhere", all(alone, acquire, waitsThere("shared"), waitsHere,
		toPass.is("nothing"), expectOpen(false))},
	{"not passed: the first is for the subtree", all(alone, acquire, waitsHere,
		execute("update fence.waiters set scope = 'subtree' where lock = $1"), toPass.is("nothing"))},
	{"not passed: a reader of the subtree is first, and a reader elsewhere is notified", all(alone, acquire, waitsHereAs("shared"),
		execute("update fence.waiters set scope = 'subtree' where lock = $1"), waitsThere("shared"),
		toPass.tells("nothing", wakeThereAt))},
	{"not passed: a reader still reads", all(alone, share, share, waitsHere, toPass.is("held"))},
	{"not passed: a lease that is not the newest", all(alone, acquire, expire, acquire, waitsHere, toPass.ofFirst().is("held"))},
	{"not passed: by another owner", all(alone, acquire, waitsHere, toPass.as("other").is("held"))},
	{"passed: beside a waiter for the subtree above", all(alone, onBelow("/x", acquire, waitsHere), waiterAt(uuid.New(), "", "exclusive",
		"subtree", time.Hour), onBelow("/x", toPass.is("granted")))},
	{"not passed: the tokens are another service's by now", all(alone, acquire, waitsHere, waiter("-other", "shared", "node",
		time.Minute), external, toPass.is("external"), expectOpen(false),
		counted(1, "select count(*) from fence.waiters where lock = $1 || '-other'"))},
	{"passed: the lock is watched", all(alone, acquire, waitsHere, watched, toPass.tells("granted", changeOf))},

	{"granted: the lock is watched", all(alone, acquire, release, waitsHere, watched, toGrant.tells("granted", changeOf))},
	{"granted: tokens jump first", all(alone, acquire, release, waitsHere, whileTokensJump(toGrant.is("granted"),
		counted(1, "select count(*) from fence.leases where lock = $1 and fencing_token > (1::bigint << 32) and ended_at is null")))},
}

// passMutations break the functions of passCases.
var passMutations = []mutation{
	{"passed: what was written elsewhere is overlooked", "grant_lease",
		replacing("greatest(p_fence.granted_token, p_fence.last_token, ", "greatest(p_fence.granted_token, "),
		[]string{"passed: the token is greater than what was written elsewhere"}},
	{"passed: waiters that do not count", "grant_waiters", replacing("fence.live_waiters(p_gateway_id)", "fence.waiters"),
		[]string{"passed: after one whose time is over"}},
	{"passed: the last is first", "grant_waiters", replacing("order by w.ticket loop", "order by w.ticket desc loop"),
		[]string{"passed: to the first waiter", "not passed: another gateway's waiter is first"}},
	{"passed: past another gateway's waiter", "grant_waiters", removing(" or v_waiter.gateway_id is distinct from p_gateway_id"),
		[]string{"not passed: another gateway's waiter is first"}},
	{"passed: past a writer elsewhere", "grant_waiters", replacing("exit when 'exclusive' in (v_granted.mode, v_waiter.mode) and not v_external",
		"exit when v_granted.mode = 'exclusive'"), []string{"not passed: readers after a writer elsewhere"}},
	{"passed: to a writer after a reader", "grant_waiters", removing("        exit when v_waiter.mode = 'exclusive' and v_next.ticket is not null and not v_external;\n"),
		[]string{"not passed: a writer after a reader elsewhere"}},
	{"passed: to one for a subtree", "grant_waiters", replacing("if v_waiter.scope = 'subtree' and p_scope <> 'subtree' then", "if false then"),
		[]string{"not passed: the first is for the subtree"}},
	{"passed: beside a reader", "grant_waiters", replacing("v_trees or fence.may_be_held(v_found.mode", "false and fence.may_be_held(v_found.mode"),
		[]string{"not passed: a reader still reads", "not passed: by another owner"}},
	{"passed: to one whose session has ended", "grant_waiters", replacing("coalesce(v_session.ended_at, v_session.expires_at, '-infinity')", "'infinity'"),
		[]string{"passed: after one whose session has ended"}},
	{"passed: the owner proves nothing", "release_lease", replacing("(p_lease_id, p_owner_id)\n", "(p_lease_id, l.owner_id)\n"),
		[]string{"not passed: by another owner"}},
	{"passed: what was replaced", "release_lease", replacing("l.fencing_token >= greatest(v_fence.granted_token, fence.granted_above(p_lock))", "true"),
		[]string{"one, alone: a release of what expired and was replaced"}},
	{"passed: the waiter stays", "grant_waiters", replacing("where w.ticket = v_waiter.ticket;\n        if", "where false;\n        if"), []string{"passed: to the first waiter"}},
	{"passed: the next is not notified", "grant_waiters", replacing("or v_next.ticket is not null and", "or false and"),
		[]string{"passed: the next waiter's gateway is notified", "not passed: another gateway's waiter is first"}},
	{"passed: readers elsewhere are notified too late", "grant_waiters", replacing("(v_granted.mode = 'shared' or", "(false or"),
		[]string{"passed: beside a reader elsewhere"}},
	{"passed: the fence stays open", "grant_waiters", removing("            perform fence.close_fence(v_lock, p_ended_token);\n"),
		[]string{"not passed: another gateway's waiter is first"}},
	{"passed: another service's tokens", "grant_waiters", replacing("elsif v_external then", "elsif false then"),
		[]string{"not passed: the tokens are another service's by now"}},
	{"granted: watchers are overlooked", "grant_waiters", replacing("v_found.policies, v_found.watched)", "v_found.policies, false)"),
		[]string{"granted: the lock is watched"}},
	{"granted: tokens do not jump", "grant_waiters", replacing("v_found.here, v_found.policies", "true, v_found.policies"),
		[]string{"granted: tokens jump first"}},
	{"passed: a writer beside readers", "grant_waiters", removing("        v_found.mode := lease.mode;\n"),
		[]string{"passed: to readers up to a writer"}},
	{"passed: what adopted the token stays open", "grant_lease", replacing("elsif p_fence.open and", "elsif false and"),
		[]string{"passed: a lease for the subtree"}},
}

// hereID is the gateway that hands over, thereID another one.
const (
	hereID  = "00000000-0000-4000-8000-000000000001"
	thereID = "00000000-0000-4000-8000-000000000002"

	joinSessionSQL = "update fence.waiters w set session_id = s.session_id, session_until = s.expires_at " +
		"from (select * from fence.sessions order by created_at desc limit 1) s where w.lock = $1"
)

var (
	toPass  = onLease("outcome", "fence.release_lease($1, %s, %s::uuid, $2, '"+hereID+"', true)")
	toGrant = togetherCall{of: newestOrNone, answer: "outcome", function: "fence.grant_next('" + hereID + "', $1, 'node')"}
)

// alone is the state without policies.
var alone = execute("delete from fence.policies")

// waitsHere is in the queue at the gateway that hands over.
var waitsHere = waitsHereAs("exclusive")

func waitsHereAs(mode string) step {
	return waiterAt(uuid.MustParse(hereID), "", mode, "node", time.Hour)
}

func waitsThere(mode string) step {
	return waiterAt(uuid.MustParse(thereID), "", mode, "node", time.Hour)
}
