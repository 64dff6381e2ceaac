package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

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

// passCases are about fence.pass_lease. Each is about one release, with which it passes the lock to a waiter
// (together), or which it leaves to the rest of fence.hand_over (leftAlone).
var passCases = []storeCase{
	{"passed: to the first waiter", all(alone, acquire, waitsHere, waitsHere, together(toPass), grantedTogether,
		counted(1, "select count(*) from fence.waiters where lock = $1"),
		counted(1, "select count(*) from fence.leases l join fence.leases p on p.lock = l.lock and p.ended_at = l.granted_at "+
			"where l.lock = $1 and l.ended_at is null and l.expires_at = l.granted_at + interval '1 second' "+
			"and l.check_at = l.expires_at and l.waited_ms > 0 and p.end_reason = 'released'"),
		expectOpen(true), rejected(with(first), "token_stale superseded"), wrote(with(newest, sequence(1))))},
	{"passed: the token is greater than what was written elsewhere", all(alone, acquire, waitsHere,
		execute("update fence.fences set last_token = $2 + 1000000 where resource = $1"), together(toPass),
		grantedTogether, wrote(with(newest)))},
	{"passed: beside a policy and a subtree below", all(alone, onBelow("/x", under(store.Policy{}), acquireSubtree),
		acquire, waitsHere, together(toPass))},
	{"passed: the next waiter's gateway is told", all(alone, acquire, waitsHere, nextIsTold)},

	{"not passed: nobody waits", all(alone, acquire, leftAlone(toPass))},
	{"not passed: another gateway's waiter is first", all(alone, acquire, waiter("", "exclusive", "node", time.Hour),
		waitsHere, leftAlone(toPass))},
	{"not passed: a reader is first", all(alone, acquire, waitsHere,
		execute("update fence.waiters set mode = 'shared' where lock = $1"), leftAlone(toPass))},
	{"not passed: the first is for the subtree", all(alone, acquire, waitsHere,
		execute("update fence.waiters set scope = 'subtree' where lock = $1"), leftAlone(toPass))},
	{"not passed: the first is in a session", all(alone, openSession, acquire, waitsHere,
		execute("update fence.waiters set session_id = (select session_id from fence.sessions order by created_at desc limit 1) "+
			"where lock = $1"), leftAlone(toPass))},
	{"not passed: the time of the waiter is over", all(alone, acquire, waitsHere,
		execute("update fence.waiters set deadline_at = clock_timestamp() where lock = $1"), leftAlone(toPass))},
	{"not passed: a lease that has expired", all(alone, acquire, expire, waitsHere, leftAlone(toPass))},
	{"not passed: a lease that was released", all(alone, acquire, release, waitsHere, leftAlone(toPass))},
	{"not passed: a lease that is not the newest", all(alone, acquire, expire, acquire, waitsHere,
		leftAlone(togetherCall{toPass.function, (*fixture).first, "$3", "$4"}))},
	{"not passed: by another owner", all(alone, acquire, waitsHere, leftAlone(toPass.as("other")))},
	{"not passed: with another lease_id", all(alone, acquire, waitsHere, leftAlone(toPass.with("gen_random_uuid()")))},
	{"not passed: a reader's lease", all(alone, share, waitsHere, leftAlone(toPass))},
	{"not passed: a lease for the subtree", all(acquireSubtree, alone, waitsHere, leftAlone(toPass))},
	{"not passed: a lease in a session", all(alone, openSession, inSession(acquire), waitsHere, leftAlone(toPass))},
	{"not passed: a lease that the sweep keeps", all(alone, acquire, waitsHere,
		execute("update fence.leases set kept = true where lock = $1"), leftAlone(toPass))},
	{"not passed: there is a policy", all(alone, under(store.Policy{}), acquire, waitsHere, leftAlone(toPass))},
	{"not passed: there is a subtree above", all(alone, onBelow("/x", acquire, waitsHere),
		execute(requestSubtreeSQL), onBelow("/x", leftAlone(toPass)))},
	{"not passed: there is a subtree of the name", all(alone, acquire, waitsHere,
		execute(requestSubtreeSQL), leftAlone(toPass))},
	{"not passed: the lock is watched", all(alone, acquire, waitsHere, watched, leftAlone(toPass))},
}

// passMutations break the function of passCases.
var passMutations = []mutation{
	{"passed: policies are overlooked", "pass_lease", replacing("exists (select from fence.policies)", "false"),
		[]string{"not passed: there is a policy"}},
	{"passed: all policies count", "pass_lease", removing(" and exists (select from fence.policy_for(p_lock))"),
		[]string{"passed: beside a policy and a subtree below"}},
	{"passed: subtrees above are overlooked", "pass_lease", removing(" or fence.has_subtrees(p_lock)"),
		[]string{"not passed: there is a subtree above"}},
	{"passed: subtrees of the name are overlooked", "pass_lease", removing(" and f.subtree_token is null"),
		[]string{"not passed: there is a subtree of the name"}},
	{"passed: what was written elsewhere is overlooked", "pass_lease",
		replacing("greatest(f.granted_token, f.last_token)", "f.granted_token"),
		[]string{"passed: the token is greater than what was written elsewhere"}},
	{"passed: watchers are overlooked", "pass_lease", replacing("w.lock = p_lock and w.until", "false and w.until"),
		[]string{"not passed: the lock is watched"}},
	{"passed: waiters that do not count", "pass_lease", replacing("fence.live_waiters()", "fence.waiters"),
		[]string{"not passed: the time of the waiter is over"}},
	{"passed: the last is first", "pass_lease", replacing("order by w.ticket limit 2", "order by w.ticket desc limit 2"),
		[]string{"not passed: another gateway's waiter is first"}},
	{"passed: to another gateway's waiter", "pass_lease", both(
		replacing("(v_first.mode, v_first.scope, v_first.gateway_id)", "(v_first.mode, v_first.scope)"),
		both(replacing("('exclusive', 'node', p_gateway_id)", "('exclusive', 'node')"),
			removing(" and w.gateway_id = p_gateway_id"))), []string{"not passed: another gateway's waiter is first"}},
	{"passed: to a reader", "pass_lease", both(
		replacing("(v_first.mode, v_first.scope, v_first.gateway_id)", "(v_first.scope, v_first.gateway_id)"),
		replacing("('exclusive', 'node', p_gateway_id)", "('node', p_gateway_id)")),
		[]string{"not passed: a reader is first"}},
	{"passed: to one for a subtree", "pass_lease", both(
		replacing("(v_first.mode, v_first.scope, v_first.gateway_id)", "(v_first.mode, v_first.gateway_id)"),
		replacing("('exclusive', 'node', p_gateway_id)", "('exclusive', p_gateway_id)")),
		[]string{"not passed: the first is for the subtree"}},
	{"passed: to one in a session", "pass_lease", replacing("v_first.session_id is not null", "false"),
		[]string{"not passed: the first is in a session"}},
	{"passed: the owner proves nothing", "pass_lease", replacing("(p_lease_id, p_owner_id,", "(p_lease_id, l.owner_id,"),
		[]string{"not passed: by another owner"}},
	{"passed: the lease_id proves nothing", "pass_lease", replacing("(p_lease_id, p_owner_id,", "(l.lease_id, p_owner_id,"),
		[]string{"not passed: with another lease_id"}},
	{"passed: a reader's lease", "pass_lease", replacing("p_owner_id, 'exclusive')\n        and", "p_owner_id, l.mode)\n        and"),
		[]string{"not passed: a reader's lease"}},
	{"passed: what has ended", "pass_lease", removing("l.ended_at is null and "),
		[]string{"not passed: a lease that was released"}},
	{"passed: a lease of a session", "pass_lease", removing("l.session_id is null and "),
		[]string{"not passed: a lease in a session"}},
	{"passed: what the sweep keeps", "pass_lease", removing(" and not l.kept"),
		[]string{"not passed: a lease that the sweep keeps"}},
	{"passed: what has expired", "pass_lease", removing("\n        and l.expires_at > clock_timestamp()"),
		[]string{"not passed: a lease that has expired"}},
	{"passed: the waiter stays", "pass_lease", replacing("where w.ticket = v_first.ticket;\n", "where false;\n"),
		[]string{"passed: to the first waiter"}},
	{"passed: the next is not told", "pass_lease", replacing("v_next.ticket is not null", "false"),
		[]string{"passed: the next waiter's gateway is told"}},
}

// hereID is the gateway that hands over.
const hereID = "00000000-0000-4000-8000-000000000001"

var toPass = onLease("fence.pass_lease($1, %s, %s::uuid, $2, '" + hereID + "') p where p.ticket is not null")

// alone is the state without policies.
var alone = execute("delete from fence.policies")

// waitsHere is in the queue at the gateway that hands over.
var waitsHere = waiterAt(uuid.MustParse(hereID), "", "exclusive", "node", time.Hour)

// nextIsTold expects that the gateway of the second waiter is told how long the lease of the first runs.
func nextIsTold(ctx context.Context, s *fixture) error {
	gateway := uuid.New()
	listener, err := pgx.ConnectConfig(ctx, s.SQL.Config().ConnConfig)
	if err != nil {
		return err
	}
	defer listener.Close(context.WithoutCancel(ctx))
	var channel string
	err = listener.QueryRow(ctx, "select fence.gateway_channel($1)", gateway).Scan(&channel)
	if err != nil {
		return err
	}
	channel = pgx.Identifier{channel}.Sanitize()
	if _, err := listener.Exec(ctx, "listen "+channel); err != nil {
		return err
	}
	if err := s.do(ctx, waiterAt(gateway, "", "exclusive", "node", time.Hour), together(toPass)); err != nil {
		return err
	}
	if _, err := listener.Exec(ctx, "notify "+channel+", 'nothing'"); err != nil {
		return err
	}
	told, err := listener.WaitForNotification(ctx)
	if err == nil && told.Payload == "nothing" {
		err = errors.New("the next waiter's gateway is not told")
	}
	return err
}
