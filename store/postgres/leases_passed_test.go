package postgres_test

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/fencegate/fencegate/store"
)

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
	{"not passed: a limited lease", all(under(store.Policy{MaxHold: 3 * time.Hour}), acquire, alone, waitsHere,
		leftAlone(toPass))},
	{"not passed: a lease that the sweep keeps", all(alone, acquire, waitsHere,
		execute("update fence.leases set kept = true where lock = $1"), leftAlone(toPass))},
	{"not passed: there is a policy", all(alone, under(store.Policy{}), acquire, waitsHere, leftAlone(toPass))},
	{"not passed: there is a subtree above", all(alone, onBelow("/x", acquire, waitsHere),
		execute("insert into fence.subtrees (name) values ($1)"), onBelow("/x", leftAlone(toPass)))},
	{"not passed: there is a subtree of the name", all(alone, acquire, waitsHere,
		execute("insert into fence.subtrees (name) values ($1)"), leftAlone(toPass))},
	{"not passed: the lock is watched", all(alone, acquire, waitsHere, watched, leftAlone(toPass))},
}

// passMutations break the function of passCases.
var passMutations = []mutation{
	{"passed: policies are overlooked", "pass_lease", replacing("exists (select from fence.policies)", "false"),
		[]string{"not passed: there is a policy"}},
	{"passed: all policies count", "pass_lease", removing(" and exists (select from fence.policy_for(p_lock))"),
		[]string{"passed: beside a policy and a subtree below"}},
	{"passed: subtrees above are overlooked", "has_subtrees", removing("fence.ancestors(p_lock) || "),
		[]string{"not passed: there is a subtree above"}},
	{"passed: subtrees of the name are overlooked", "has_subtrees", removing(" || p_lock"),
		[]string{"not passed: there is a subtree of the name"}},
	{"passed: all subtrees count", "has_subtrees", replacing("where s.name = any (fence.ancestors(p_lock) || p_lock)", ""),
		[]string{"passed: beside a policy and a subtree below"}},
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
	{"passed: a reader's lease", "pass_lease", replacing("p_owner_id, 'exclusive',", "p_owner_id, l.mode,"),
		[]string{"not passed: a reader's lease"}},
	{"passed: a subtree's lease", "pass_lease", replacing(", 'exclusive', 'node')\n            and", ", 'exclusive', l.scope)\n            and"),
		[]string{"not passed: a lease for the subtree"}},
	{"passed: what has ended", "pass_lease", removing("l.ended_at is null and "),
		[]string{"not passed: a lease that was released"}},
	{"passed: a lease of a session", "pass_lease", removing("l.session_id is null and "),
		[]string{"not passed: a lease in a session"}},
	{"passed: a limited lease", "pass_lease", removing("l.hold_until is null and "),
		[]string{"not passed: a limited lease"}},
	{"passed: what the sweep keeps", "pass_lease", removing(" and not l.kept"),
		[]string{"not passed: a lease that the sweep keeps"}},
	{"passed: what has expired", "pass_lease", removing("\n            and l.expires_at > clock_timestamp()"),
		[]string{"not passed: a lease that has expired"}},
	{"passed: the fence is not raised", "pass_lease", removing("granted_token = g.fencing_token, "),
		[]string{"passed: to the first waiter"}},
	{"passed: the fence is closed", "pass_lease", replacing("open = true", "open = false"),
		[]string{"passed: to the first waiter"}},
	{"passed: the waiter stays", "pass_lease", replacing("where w.ticket = v_first.ticket\n", "where false\n"),
		[]string{"passed: to the first waiter"}},
	{"passed: the next is not told", "pass_lease", replacing("v_next.ticket is not null", "false"),
		[]string{"passed: the next waiter's gateway is told"}},
}

// hereID is the gateway that hands over.
const hereID = "00000000-0000-4000-8000-000000000001"

var toPass = onLease("fence.pass_lease($1, %s, %s::uuid, $2, '" + hereID + "') p where p.ticket is not null")

// alone makes the lock the only thing that the database has.
var alone = all(execute("delete from fence.policies"), execute("delete from fence.subtrees"))

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
	if err == nil && !strings.HasSuffix(told.Payload, " "+string(s.lock)) {
		err = fmt.Errorf("the next waiter's gateway is told %q, want a time and the lock", told.Payload)
	}
	return err
}
