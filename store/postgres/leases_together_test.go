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

// togetherCases are about the functions that decide many leases in one statement, and leave the rest to those for one;
// and about those for one, where they must not wait (one). Each is about one lease, and the answer to it: undecided, if it
// is left to a call that may wait.
var togetherCases = slices.Concat(
	acquiresAndReleases("", decidedBy{toAcquire, toShare, toRelease, toReleaseFirst}),
	acquiresAndReleases("one, ", decidedBy{toAcquireOne, toShareOne, toReleaseOne, toReleaseFirstOne}),
	renewals)

// decidedBy are the calls by which a case sends its request.
type decidedBy struct{ acquire, share, release, releaseFirst togetherCall }

// acquiresAndReleases are the cases about both, with a prefix to their names.
func acquiresAndReleases(prefix string, by decidedBy) []storeCase {
	cases := append(acquiresBy(by), releasesBy(by)...)
	for i := range cases {
		// A policy or subtree of another case would send all to the functions for many.
		cases[i].name, cases[i].run = prefix+cases[i].name, all(alone, cases[i].run)
	}
	return cases
}

func acquiresBy(by decidedBy) []storeCase {
	return []storeCase{
		{"together: a lock whose lease has ended", all(acquire, release, by.acquire.is("granted"), grantedTogether,
			expectOpen(true), wrote(with(newest, sequence(1))))},
		{"together: the token is greater than what was written elsewhere", all(acquire, release,
			execute("update fence.fences set last_token = $2 + 1000000 where resource = $1"), by.acquire.is("granted"),
			grantedTogether, wrote(with(newest)))},
		{"together: a reader after a reader", all(acquire, release, share, by.share.is("granted"), grantedTogether,
			expectOpen(false))},
		{"together: a hold that a policy limits", all(acquire, release, under(store.Policy{MaxHold: time.Minute}),
			by.acquire.is("granted"), counted(1, "select count(*) from fence.leases l "+
				"where l.lock = $1 and l.hold_until <= l.granted_at + interval '1 minute' and l.expires_at = l.hold_until"))},

		{"alone: a lock that is held", all(acquire, release, acquire, by.acquire.is("held"))},
		{"alone: a lease that has expired", all(acquire, release, acquire, expire, by.acquire.is("granted"),
			counted(1, "select count(*) from fence.leases where lock = $1 and end_reason = 'expired'"))},
		{"alone: an expired lease that is locked", all(acquire, expire,
			by.acquire.whileHolding(lockLeaseSQL, "undecided"))},
		{"alone: a writer after a reader", all(acquire, release, share, by.acquire.is("held"))},
		{"alone: a lease that is not the newest grant", all(acquire,
			execute("update fence.fences set granted_token = granted_token + 1000000 where resource = $1"), by.acquire.is("held"))},
		{"alone: a name that was never used", by.acquire.is("undecided")},
		{"alone: a name that was never granted", all(execute("insert into fence.fences (resource) values ($1)"),
			by.acquire.is("undecided"))},
		{"alone: a lease that the sweep keeps", all(acquire, release,
			execute("update fence.leases set kept = true where lock = $1"), by.acquire.is("granted"))},
		{"alone: a request_id that was used", all(acquire, release,
			execute("update fence.leases set request_id = 'together' where lock = $1"), by.acquire.is("request_id_reused"))},
		{"alone: a request_id that another lock has, too", all(acquire, release, by.acquire.is("granted"), endInTable,
			onBelow("/x", acquire, release, by.acquire.is("granted"), by.acquire.is("granted")))},
		{"alone: a lease to be adopted that is locked", all(acquire, execute("update fence.leases set request_id = 'together', "+
			"owner_id = 'together', principal = 'principal', waited_ms = 1, requested_ttl_ms = 3600000 where lock = $1"),
			by.acquire.whileHolding(lockLeaseSQL, "undecided"))},
		{"alone: another authority", all(acquire, release, external, by.acquire.is("undecided"))},
		{"alone: an owner that the policy refuses", all(acquire, release,
			under(store.Policy{RequirePrincipalOwner: true}), by.acquire.is("owner_refused"))},
		{"alone: a lock with a waiter", all(acquire, release, waiter("", "shared", "node", time.Minute), by.acquire.is("held"))},
		{"alone: a lock that is watched", all(acquire, release, watched, by.acquire.tells("granted", changeOf))},
		{"alone: a subtree above", all(onBelow("/x", acquire, release), acquireSubtree,
			onBelow("/x", by.acquire.is("held")))},
		{"alone: a subtree of the name", all(acquireSubtree, writesBelow(true), expire,
			execute("update fence.leases set ended_at = expires_at, end_reason = 'expired' where lock = $1"),
			by.acquire.is("granted"), writesBelow(false))},
		{"alone: a subtree of the name, with a locked fence below", all(acquireSubtree, writesBelow(true), expire,
			by.acquire.whileHolding(lockBelowSQL, "undecided"))},
		{"alone: a release of a subtree", all(acquireSubtree, by.release.is("undecided"))},
		{"alone: a locked fence", all(acquire, release, by.acquire.whileHolding(lockFenceSQL, "undecided"))},
		{"alone: a deep name below a subtree that is being requested", all(onBelow("/x/y", acquire, release),
			whileRequestingSubtree(onBelow("/x/y", by.acquire.is("undecided"))))},
		{"alone: a subtree above that is being requested", all(onBelow("/x", acquire, release),
			whileRequestingSubtree(onBelow("/x", by.acquire.is("undecided"))))},
	}
}

func releasesBy(by decidedBy) []storeCase {
	return []storeCase{
		{"together: a release", all(acquire, by.release.is("released"), expectOpen(false),
			rejected(with(newest), "token_stale released"))},
		{"together: a release of a reader after which another came", all(share, acquireBesideItself, by.releaseFirst.is("released"),
			expectOpen(true))},
		{"alone: a release of what has expired", all(acquire, expire, by.release.is("released"), expectOpen(false),
			counted(1, "select count(*) from fence.leases where lock = $1 and ended_at = expires_at and end_reason = 'released'"))},
		{"alone: a release of what expired and was replaced", all(acquire, expire, acquire, by.releaseFirst.is("superseded"))},
		{"alone: a release of a reader that expired, after another", all(share, expire, share, by.releaseFirst.is("superseded"))},
		{"alone: a release of what was released", all(acquire, release, changingNothing(by.release.is("released")))},
		{"alone: a release by another owner", all(acquire, changingNothing(by.release.as("other").is("mismatch")))},
		{"alone: a release with another lease_id", all(acquire,
			changingNothing(by.release.with("gen_random_uuid()").is("mismatch")))},
		{"alone: a release in a session", all(openSession, inSession(acquire), by.release.is("released"))},
		{"alone: a release with a waiter", all(acquire, waitsHere, by.release.tells("released", wakeHere))},
		{"alone: a release of a locked lease", all(acquire, by.release.whileHolding(lockLeaseSQL, "undecided"))},
		{"alone: a release under a locked fence", all(acquire, by.release.whileHolding(lockFenceSQL, "undecided"))},
		{"together: tokens jump first", all(acquire, release, whileTokensJump(by.acquire.is("granted"), grantedTogether,
			counted(1, "select count(*) from fence.leases where lock = $1 and fencing_token > (1::bigint << 32) and ended_at is null")))},
		{"together: a release beside a subtree of another name", all(acquire, onBelow("/x",
			execute(requestSubtreeSQL)), by.release.is("released"))},
		{"alone: a release that is watched", all(acquire, watched, by.release.tells("released", changeOf))},
		{"alone: a release below a subtree", all(onBelow("/x", acquire), execute(requestSubtreeSQL),
			waiterAt(uuid.MustParse(hereID), "", "exclusive", "subtree", time.Hour),
			onBelow("/x", by.release.tells("released", wakeAbove)))},
		{"alone: a release below a subtree that is being requested", all(onBelow("/x", acquire),
			whileRequestingSubtree(onBelow("/x", by.release.is("undecided"))))},
	}
}

// renewals are the cases about renewals, and one about a release that hands over.
var renewals = []storeCase{
	{"together: a renewal", all(acquire, toRenew.is("live"), counted(1,
		"select count(*) from fence.leases where lock = $1 and expires_at > clock_timestamp() + interval '90 minutes'"))},
	{"alone: a renewal that shortens", all(acquire, waitsHere, toShorten.tells("live", wakeHere))},
	{"alone: a renewal of what has expired", all(acquire, expire, changingNothing(toRenew.is("expired")))},
	{"alone: a renewal of what was released", all(acquire, release, changingNothing(toRenew.is("released")))},
	{"alone: a renewal by another owner", all(acquire, changingNothing(toRenew.as("other").is("mismatch")))},
	{"alone: a renewal with another lease_id", all(acquire, changingNothing(toRenew.with("gen_random_uuid()").is("mismatch")))},
	{"alone: a renewal in a session", all(openSession, inSession(acquire), changingNothing(toRenew.is("in_session")))},
	{"alone: a renewal of a limited lease", all(under(store.Policy{MaxHold: 3 * time.Hour}), acquire, dropPolicy,
		toRenew.is("live"), counted(1, "select count(*) from fence.leases where lock = $1 and hold_until is null"))},
	{"alone: a renewal that a policy limits", all(acquire, under(store.Policy{MaxHold: 90 * time.Minute}), toRenew.is("live"),
		counted(1, "select count(*) from fence.leases where lock = $1 and hold_until = expires_at "+
			"and expires_at = granted_at + interval '90 minutes'"))},
	{"alone: a renewal after the time that a policy allows", all(acquire, waitsHere,
		execute("update fence.leases set granted_at = granted_at - interval '1 day' where lock = $1"),
		under(store.Policy{MaxHold: time.Hour}), toRenew.tells("expired", wakeHere))},
	{"alone: a renewal of a lease in Redis", all(acquire, execute("update fence.leases set lease_id = "+
		"'00000000-0000-8100-8000-000000000000' where lock = $1"),
		toRenew.with("'00000000-0000-8100-8000-000000000000'").is("LF005"))},
	{"alone: a renewal of a locked lease", all(acquire, toRenew.whileHolding(lockLeaseSQL, "undecided"))},

	{"many: durable with one that is granted at once, beside one that is held", all(alone, acquire,
		onBelow("/x", acquire, release), commitWaits("on", acquireBothSQL))},
	{"many: durable with one that is granted alone, beside one that is held", all(alone, acquire,
		onBelow("/x", acquire, release, watched), commitWaits("on", acquireBothSQL))},
	{"many: not durable where both are held", all(alone, acquire, onBelow("/x", acquire), commitWaits("off", acquireBothSQL))},
	{"many: durable with a release, beside one that is undecided", all(alone, onBelow("/x", acquire), commitWaits("on",
		"select from fence.leases l, fence.release_leases(array[l.lock, $1], array[l.owner_id, ''], "+
			"array[l.lease_id, gen_random_uuid()], array[l.fencing_token, 1]) where l.lock = $1 || '/x' and l.ended_at is null"))},

	{"asked again: a waiter is granted the lock", all(alone, acquire, waitsHere, waitsTogether, waitsThere("exclusive"), expire,
		toAcquireOne.tells("granted", wakeThere), counted(1, "select count(*) from fence.waiters where lock = $1 and owner_id = 'waiter'"))},
	{"asked again: a waiter waits elsewhere", all(alone, acquire, waitsThere("exclusive"), waitsTogether, waitsThere("exclusive"),
		toWaitHere.is("queued"), counted(1, "select count(*) from fence.waiters where lock = $1 and gateway_id = '"+hereID+"' "+
			"and owner_id = 'together'"), counted(1, "select count(*) from fence.waiters where lock = $1 and gateway_id = '"+thereID+"'"))},
	{"asked again: not by a waiter for another lock", all(alone, waitsHere, waitsTogether, onBelow("/x", acquire, waitsHere,
		toWaitHere.is("queued"), counted(1, "select count(*) from fence.waiters where lock = $1 and owner_id = 'together'")))},
	{"asked again: in a session that has ended", all(alone, openSession, toAcquireInSession.is("granted"), endSession,
		toAcquireInSession.is("lost"))},
	{"a try behind a waiter says how long the lease runs", all(alone, acquire, waitsThere("exclusive"), toSeeHowLong.is("true"))},

	{"hand over: durable, also if nobody is granted the lock", all(acquire, release, waiter("", "exclusive", "node", time.Hour),
		commitWaits("on", "select from fence.leases l, fence.release_lease($1, l.owner_id, l.lease_id, l.fencing_token, "+
			"gen_random_uuid(), true) where l.lock = $1"), expectOpen(false))},
}

// togetherMutations break the functions of togetherCases.
var togetherMutations = []mutation{
	{"many: a held lock is granted", "acquire_leases",
		replacing("'exclusive' then newest.ended_at is not null", "'exclusive' then true"),
		[]string{"alone: a lock that is held", "alone: a lease that has expired"}},
	{"many: a writer beside readers", "acquire_leases", replacing("'shared' then r.mode = 'shared'", "'shared' then true"),
		[]string{"alone: a writer after a reader"}},
	{"many: the newest lease may be missing", "acquire_leases", replacing("else f.granted_token = 0", "else true"),
		[]string{"alone: a lease that is not the newest grant"}},
	{"many: used request_ids are overlooked", "acquire_leases",
		replacing(`o.lock = r.lock collate "POSIX" and o.request_id = r.request_id`, "false"),
		[]string{"alone: a request_id that was used"}},
	{"many: the authority is overlooked", "acquire_leases", replacing("v_policies and fence.has_external_tokens(r.lock)",
		"false"), []string{"alone: another authority"}},
	{"many: the principal is overlooked", "acquire_leases", replacing("v_policies and not fence.owner_is_allowed",
		"false and not fence.owner_is_allowed"), []string{"alone: an owner that the policy refuses"}},
	{"many: the hold is overlooked", "acquire_leases",
		replacing("case when v_policies then fence.hold_until(r.lock, t.now, t.now) end", "null::timestamptz"),
		[]string{"together: a hold that a policy limits"}},
	{"many: what was written elsewhere is overlooked", "acquire_leases",
		replacing("greatest(f.granted_token, f.last_token)", "f.granted_token"),
		[]string{"together: the token is greater than what was written elsewhere"}},
	{"many: the fence is not raised", "acquire_leases", removing("granted_token = l.fencing_token, "),
		[]string{"together: a lock whose lease has ended"}},
	{"many: a reader opens the fence", "acquire_leases", replacing("open = l.mode = 'exclusive',", "open = true,"),
		[]string{"together: a reader after a reader"}},
	{"many: acquires wait for fences", "acquire_leases", removing(" skip locked"), []string{"alone: a locked fence"}},
	{"many: acquires overlook tree locks", "acquire_leases", removing(" where fence.try_tree_lock(l)"),
		[]string{"alone: a subtree above that is being requested"}},
	{"many: what is left is not sent to the function for one", "acquire_leases", replacing("where r.lock <> all (v_done)", "where false"),
		[]string{"alone: a lock that is held", "alone: a lease that has expired"}},
	{"many: the function for one may wait", "acquire_leases", replacing("v_request.gateway_id, false)", "v_request.gateway_id, true)"),
		[]string{"alone: a locked fence", "alone: an expired lease that is locked"}},
	{"many: releases overlook tree locks", "release_leases", removing(" where fence.try_tree_lock(l)"),
		[]string{"alone: a release below a subtree that is being requested"}},
	{"many: the function for one may wait to release", "release_leases", replacing("v_ref.token, null, false)", "v_ref.token, null, true)"),
		[]string{"alone: a release of a locked lease"}},
	{"many: the tree lock is that of the whole name", "tree_of", replacing("split_part(p_lock, '/', 1)", "p_lock"),
		[]string{"alone: a deep name below a subtree that is being requested"}},
	{"many: waiters are overlooked", "plain_locks",
		replacing("not exists (select from fence.waiters w where w.lock = l offset 0)", "true"),
		[]string{"alone: a lock with a waiter", "alone: a release with a waiter"}},
	{"many: watchers are overlooked", "plain_locks", replacing("select from fence.watched w where w.lock = l and",
		"select from fence.watched w where false and"),
		[]string{"alone: a lock that is watched", "alone: a release that is watched"}},
	{"many: the name's own subtree is overlooked", "plain_locks", replacing("f.subtree_token is not null", "false"),
		[]string{"alone: a subtree of the name", "alone: a release of a subtree"}},
	{"many: subtrees are overlooked", "plain_locks", removing("\n            and not fence.has_subtrees(l)"),
		[]string{"alone: a subtree above", "alone: a release below a subtree"}},

	{"many: a release leaves the fence open", "release_leases", replacing("set open = false", "set open = true"),
		[]string{"together: a release"}},
	{"many: a release closes the fence of another", "release_leases",
		replacing("f.granted_token = e.fencing_token and f.open", "f.open"),
		[]string{"together: a release of a reader after which another came"}},
	{"many: a release comes late", "release_leases", removing(" and o.expires_at > clock_timestamp()"),
		[]string{"alone: a release of a reader that expired, after another"}},
	{"many: a release is repeated", "release_leases", removing("o.ended_at is null and "),
		[]string{"alone: a release of what was released"}},
	{"many: the owner of a release proves nothing", "release_leases",
		replacing("(o.lease_id, o.owner_id) = (r.lease_id, r.owner_id)", "o.lease_id = r.lease_id"),
		[]string{"alone: a release by another owner"}},
	{"many: the lease_id of a release proves nothing", "release_leases",
		replacing("(o.lease_id, o.owner_id) = (r.lease_id, r.owner_id)", "o.owner_id = r.owner_id"),
		[]string{"alone: a release with another lease_id"}},
	{"many: a release waits for the lease", "release_leases", removing("\n        for update of l skip locked"),
		[]string{"alone: a release of a locked lease"}},
	{"many: a release waits for the fence", "release_leases",
		replacing("f.resource = any (v_plain) for update skip locked", "f.resource = any (v_plain) for update"),
		[]string{"alone: a release under a locked fence"}},

	{"many: a renewal comes late", "renew_leases", removing(" and o.expires_at > v_now"),
		[]string{"alone: a renewal of what has expired"}},
	{"many: a renewal of what has ended", "renew_leases", removing("o.ended_at is null and "),
		[]string{"alone: a renewal of what was released"}},
	{"many: a renewal that shortens wakes nobody", "renew_leases",
		replacing("elsif lease.expires_at < v_renewed.before then", "elsif false then"),
		[]string{"alone: a renewal that shortens"}},
	{"many: a renewal too late wakes nobody", "renew_leases", removing("            perform fence.wake(lock, lease.scope, 0);\n"),
		[]string{"alone: a renewal after the time that a policy allows"}},
	{"many: a renewal in a session", "renew_leases", removing("o.session_id is null and "),
		[]string{"alone: a renewal in a session"}},
	{"many: the owner of a renewal proves nothing", "renew_leases",
		replacing("(o.lease_id, o.owner_id) = (r.lease_id, r.owner_id)", "o.lease_id = r.lease_id"),
		[]string{"alone: a renewal by another owner"}},
	{"many: the lease_id of a renewal proves nothing", "renew_leases",
		replacing("(o.lease_id, o.owner_id) = (r.lease_id, r.owner_id)", "o.owner_id = r.owner_id"),
		[]string{"alone: a renewal with another lease_id"}},
	{"many: a renewal keeps the hold", "renew_leases", removing("hold_until = v.hold_until, "),
		[]string{"alone: a renewal of a limited lease"}},
	{"many: a renewal overlooks the policy", "renew_leases", replacing("case when v_policies then", "case when false then"),
		[]string{"alone: a renewal that a policy limits"}},
	{"many: a renewal overlooks Redis", "renew_leases", replacing("fence.lease_provider(o.lease_id) = 'postgres'", "true"),
		[]string{"alone: a renewal of a lease in Redis"}},
	{"many: a renewal waits for the lease", "renew_leases", removing(" skip locked"),
		[]string{"alone: a renewal of a locked lease"}},

	{"hand over: as durable as a grant to nobody", "release_lease",
		removing("        perform set_config('synchronous_commit', v_setting, true); -- the release is durable, whatever was granted\n"),
		[]string{"hand over: durable, also if nobody is granted the lock"}},
}

// whileRequestingSubtree takes steps while another session requests the subtree of the lock.
func whileRequestingSubtree(steps ...step) step {
	return func(ctx context.Context, s *fixture) error {
		return s.whileHolding(ctx, "select fence.take_tree_locks(array[$1], array['subtree'])", s.lock, func() error {
			return s.do(ctx, steps...)
		})
	}
}

// whileTokensJump takes steps in a database that looks like another one than that which issued the last token, and sets
// its sequence back for the cases after it.
func whileTokensJump(steps ...step) step {
	return func(ctx context.Context, s *fixture) error {
		var timeline int
		var token int64
		err := s.SQL.QueryRow(ctx, "select i.timeline, t.last_value from fence.database_identity i, fence.tokens t").Scan(
			&timeline, &token)
		if err != nil {
			return err
		}
		err = s.do(ctx, append([]step{execute("update fence.database_identity set timeline = 0")}, steps...)...)
		_, restored := s.SQL.Exec(ctx, fmt.Sprintf(
			"update fence.database_identity set timeline = %d; select setval('fence.tokens', %d)", timeline, token))
		return errors.Join(err, restored)
	}
}

const (
	lockBelowSQL = "select from fence.fences where starts_with(resource, $1 || '/') for update"
	// acquireBothSQL acquires the name below the lock, and then the lock.
	acquireBothSQL = "select from fence.acquire_leases(array[$1 || '/x', $1], array['a', 'b'], array['', ''], " +
		"array['exclusive', 'exclusive'], array[1000, 1000], array['a', 'b'], array[null, null]::text[], array[0, 0], " +
		"array[null, null]::uuid[])"
)

var (
	endInTable = execute("update fence.leases set ended_at = clock_timestamp(), end_reason = 'released' where lock = $1 " +
		"and ended_at is null")
	// waitsTogether makes the waiters for the lock those of the request of an acquire.
	waitsTogether = execute("update fence.waiters set request_id = 'together', owner_id = 'together', principal = 'principal', " +
		"ttl_ms = 3600000 where lock = $1")
)

// commitWaits expects how the commit of a statement about the lock waits.
func commitWaits(want, sql string) step {
	return func(ctx context.Context, s *fixture) error {
		var setting string
		err := pgx.BeginFunc(ctx, s.SQL, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, sql, s.lock); err != nil {
				return err
			}
			return tx.QueryRow(ctx, "show synchronous_commit").Scan(&setting)
		})
		if err == nil && setting != want {
			err = fmt.Errorf("the commit waits as of %s, want %s", setting, want)
		}
		return err
	}
}

const lockLeaseSQL = "select from fence.leases where lock = $1 for update"

// whileHolding does something while another session has executed a statement and not ended its transaction.
func (s *fixture) whileHolding(ctx context.Context, statement string, arg any, do func() error) error {
	tx, err := s.SQL.Begin(ctx)
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, statement, arg)
	if err == nil {
		err = do()
	}
	return errors.Join(err, tx.Rollback(ctx))
}

// grantedTogether notes the lease that was granted.
func grantedTogether(ctx context.Context, s *fixture) error {
	lease := store.Lease{Lock: s.lock, OwnerID: "together"}
	err := s.SQL.QueryRow(ctx, "select fencing_token, lease_id from fence.leases where lock = $1 order by fencing_token "+
		"desc limit 1", s.lock).Scan(&lease.Token, &lease.ID)
	s.leases = append(s.leases, lease)
	return err
}

// acquireBesideItself ends the reader's lease in the table only, and grants another that can write.
func acquireBesideItself(ctx context.Context, s *fixture) error {
	return s.do(ctx,
		execute("update fence.leases set ended_at = now(), end_reason = 'released' where lock = $1"), acquire,
		execute("update fence.leases set ended_at = null, end_reason = null where lock = $1 and mode = 'shared'"))
}

func watched(ctx context.Context, s *fixture) error {
	_, err := s.SQL.Exec(ctx, "select fence.begin_watch(array[$1], 60000)", s.lock)
	return err
}
