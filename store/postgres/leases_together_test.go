package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencegate/fencegate/store"
)

// togetherCases are about the functions that decide many leases in one statement, and those that do the same for one
// (one). Each is about one lease, which they decide (together), or leave to the function that decides everything
// (leftAlone).
var togetherCases = slices.Concat(
	acquiresAndReleases("", decidedBy{toAcquire, toShare, toRelease, toReleaseFirst}),
	acquiresAndReleases("one, ", decidedBy{toAcquireOne, toShareOne, toReleaseOne, toReleaseFirstOne}),
	renewals)

// decidedBy are the calls by which a case sends its request.
type decidedBy struct{ acquire, share, release, releaseFirst togetherCall }

// acquiresAndReleases are the cases about both, with a prefix to their names.
func acquiresAndReleases(prefix string, by decidedBy) []storeCase {
	cases := []storeCase{
		{"together: a lock whose lease has ended", all(acquire, release, together(by.acquire), grantedTogether,
			expectOpen(true), wrote(with(newest, sequence(1))))},
		{"together: the token is greater than what was written elsewhere", all(acquire, release,
			execute("update fence.fences set last_token = $2 + 1000000 where resource = $1"), together(by.acquire),
			grantedTogether, wrote(with(newest)))},
		{"together: a reader after a reader", all(acquire, release, share, together(by.share), grantedTogether,
			expectOpen(false))},
		{"together: a hold that a policy limits", all(acquire, release, under(store.Policy{MaxHold: time.Minute}),
			together(by.acquire), counted(1, "select count(*) from fence.leases l "+
				"where l.lock = $1 and l.hold_until <= l.granted_at + interval '1 minute' and l.expires_at = l.hold_until"))},

		{"alone: a lock that is held", all(acquire, release, acquire, leftAlone(by.acquire))},
		{"alone: a lease that has expired", all(acquire, release, acquire, expire, leftAlone(by.acquire))},
		{"alone: a writer after a reader", all(acquire, release, share, leftAlone(by.acquire))},
		{"alone: a lease that is not there", all(acquire, release, execute("delete from fence.leases where lock = $1"),
			leftAlone(by.acquire))},
		{"alone: a name that was never used", leftAlone(by.acquire)},
		{"alone: a lease that the sweep keeps", all(acquire, release,
			execute("update fence.leases set kept = true where lock = $1"), leftAlone(by.acquire))},
		{"alone: a request_id that was used", all(acquire, release,
			execute("update fence.leases set request_id = 'together' where lock = $1"), leftAlone(by.acquire))},
		{"alone: another authority", all(acquire, release, external, leftAlone(by.acquire))},
		{"alone: an owner that the policy refuses", all(acquire, release,
			under(store.Policy{RequirePrincipalOwner: true}), leftAlone(by.acquire))},
		{"alone: a lock with a waiter", all(acquire, release, waiter("", "shared", "node", time.Minute),
			leftAlone(by.acquire))},
		{"alone: a lock that is watched", all(acquire, release, watched, leftAlone(by.acquire))},
		{"alone: a subtree above", all(onBelow("/x", acquire, release), acquireSubtree, release,
			onBelow("/x", leftAlone(by.acquire)))},
		{"alone: a subtree of the name", all(acquireSubtree, release, leftAlone(by.acquire))},
		{"alone: a release of a subtree", all(acquireSubtree, leftAlone(by.release))},
		{"alone: a locked fence", all(acquire, release,
			leftAloneWhile(lockFenceSQL, by.acquire))},
		{"alone: a deep name below a subtree that is being requested", all(onBelow("/x/y", acquire, release),
			whileRequestingSubtree(onBelow("/x/y", leftAlone(by.acquire))))},
		{"alone: a subtree above that is being requested", all(onBelow("/x", acquire, release),
			whileRequestingSubtree(onBelow("/x", leftAlone(by.acquire))))},

		{"together: a release", all(acquire, together(by.release), expectOpen(false), rejected(with(newest), "token_stale released"))},
		{"together: a release of a reader after which another came", all(share, acquireBesideItself, together(by.releaseFirst),
			expectOpen(true))},
		{"alone: a release of what has expired", all(acquire, expire, leftAlone(by.release))},
		{"alone: a release of what was released", all(acquire, release, leftAlone(by.release))},
		{"alone: a release by another owner", all(acquire, leftAlone(by.release.as("other")))},
		{"alone: a release with another lease_id", all(acquire, leftAlone(by.release.with("gen_random_uuid()")))},
		{"alone: a release in a session", all(openSession, inSession(acquire), leftAlone(by.release))},
		{"alone: a release with a waiter", all(acquire, waiter("", "exclusive", "node", time.Minute), leftAlone(by.release))},
		{"alone: a release of a locked lease", all(acquire, leftAloneWhile(lockLeaseSQL, by.release))},
		{"alone: a release under a locked fence", all(acquire, leftAloneWhile(lockFenceSQL, by.release))},
		{"together: tokens jump first", all(acquire, release, whileTokensJump(together(by.acquire),
			counted(1, "select count(*) from fence.database_identity where timeline > 0 and $1::text <> ''")))},
		{"together: a release beside a subtree of another name", all(acquire, onBelow("/x",
			execute(requestSubtreeSQL)), together(by.release))},
		{"alone: a release that is watched", all(acquire, watched, leftAlone(by.release))},
		{"alone: a release below a subtree", all(onBelow("/x", acquire),
			execute(requestSubtreeSQL), onBelow("/x", leftAlone(by.release)))},
		{"alone: a release below a subtree that is being requested", all(onBelow("/x", acquire),
			whileRequestingSubtree(onBelow("/x", leftAlone(by.release))))},
	}
	for i := range cases {
		// A policy or subtree of another case would send all to the functions for many.
		cases[i].name, cases[i].run = prefix+cases[i].name, all(alone, cases[i].run)
	}
	return cases
}

// renewals are the cases about renewals, and one about fence.hand_over.
var renewals = []storeCase{
	{"together: a renewal", all(acquire, together(toRenew), counted(1,
		"select count(*) from fence.leases where lock = $1 and expires_at > clock_timestamp() + interval '90 minutes'"))},
	{"alone: a renewal that shortens", all(acquire, leftAlone(toShorten))},
	{"alone: a renewal of what has expired", all(acquire, expire, leftAlone(toRenew))},
	{"alone: a renewal of what was released", all(acquire, release, leftAlone(toRenew))},
	{"alone: a renewal by another owner", all(acquire, leftAlone(toRenew.as("other")))},
	{"alone: a renewal with another lease_id", all(acquire, leftAlone(toRenew.with("gen_random_uuid()")))},
	{"alone: a renewal in a session", all(openSession, inSession(acquire), leftAlone(toRenew))},
	{"alone: a renewal of a limited lease", all(under(store.Policy{MaxHold: 3 * time.Hour}), acquire, dropPolicy,
		leftAlone(toRenew))},
	{"alone: a renewal that a policy limits", all(acquire, under(store.Policy{MaxHold: 3 * time.Hour}),
		leftAlone(toRenew))},
	{"alone: a renewal of a lease in Redis", all(acquire, execute("update fence.leases set lease_id = "+
		"'00000000-0000-8100-8000-000000000000' where lock = $1"),
		leftAlone(toRenew.with("'00000000-0000-8100-8000-000000000000'")))},
	{"alone: a renewal of a locked lease", all(acquire, leftAloneWhile(lockLeaseSQL, toRenew))},

	{"hand over: durable, also if nobody is granted the lock", all(acquire, handedOver("on"))},
}

// togetherMutations break the functions of togetherCases.
var togetherMutations = []mutation{
	{"many: a held lock is granted", "acquire_leases",
		replacing("'exclusive' then newest.ended_at is not null", "'exclusive' then true"),
		[]string{"alone: a lock that is held", "alone: a lease that has expired"}},
	{"many: a writer beside readers", "acquire_leases", replacing("'shared' then r.mode = 'shared'", "'shared' then true"),
		[]string{"alone: a writer after a reader"}},
	{"many: the newest lease may be missing", "acquire_leases", replacing("else f.granted_token = 0", "else true"),
		[]string{"alone: a lease that is not there"}},
	{"many: kept leases are overlooked", "acquire_leases", replacing("newest.kept is not true", "true"),
		[]string{"alone: a lease that the sweep keeps"}},
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
	{"many: releases overlook tree locks", "release_leases", removing(" where fence.try_tree_lock(l)"),
		[]string{"alone: a release below a subtree that is being requested"}},
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
		[]string{"alone: a release of what has expired"}},
	{"many: a release is repeated", "release_leases", removing("o.ended_at is null and "),
		[]string{"alone: a release of what was released"}},
	{"many: the owner of a release proves nothing", "release_leases",
		replacing("(o.lease_id, o.owner_id) = (r.lease_id, r.owner_id)", "o.lease_id = r.lease_id"),
		[]string{"alone: a release by another owner"}},
	{"many: the lease_id of a release proves nothing", "release_leases",
		replacing("(o.lease_id, o.owner_id) = (r.lease_id, r.owner_id)", "o.owner_id = r.owner_id"),
		[]string{"alone: a release with another lease_id"}},
	{"many: a release leaves the session", "release_leases", replacing("o.session_id is null", "true"),
		[]string{"alone: a release in a session"}},
	{"many: a release waits for the lease", "release_leases", removing("\n        for update of l skip locked"),
		[]string{"alone: a release of a locked lease"}},
	{"many: a release waits for the fence", "release_leases",
		replacing("f.resource = any (v_locks) for update skip locked", "f.resource = any (v_locks) for update"),
		[]string{"alone: a release under a locked fence"}},

	{"many: a renewal comes late", "renew_leases", removing("o.expires_at > clock_timestamp() and "),
		[]string{"alone: a renewal of what has expired"}},
	{"many: a renewal of what has ended", "renew_leases", removing("o.ended_at is null and "),
		[]string{"alone: a renewal of what was released"}},
	{"many: a renewal shortens", "renew_leases", removing(" and o.expires_at <= t.expires_at"),
		[]string{"alone: a renewal that shortens"}},
	{"many: a renewal in a session", "renew_leases", removing("o.session_id is null and "),
		[]string{"alone: a renewal in a session"}},
	{"many: the owner of a renewal proves nothing", "renew_leases",
		replacing("(o.lease_id, o.owner_id) = (r.lease_id, r.owner_id)", "o.lease_id = r.lease_id"),
		[]string{"alone: a renewal by another owner"}},
	{"many: the lease_id of a renewal proves nothing", "renew_leases",
		replacing("(o.lease_id, o.owner_id) = (r.lease_id, r.owner_id)", "o.owner_id = r.owner_id"),
		[]string{"alone: a renewal with another lease_id"}},
	{"many: a renewal overlooks the hold", "renew_leases", replacing("o.hold_until is null", "true"),
		[]string{"alone: a renewal of a limited lease"}},
	{"many: a renewal overlooks the policy", "renew_leases", replacing("v_policies and fence.hold_until", "false and fence.hold_until"),
		[]string{"alone: a renewal that a policy limits"}},
	{"many: a renewal overlooks Redis", "renew_leases", replacing("fence.lease_provider(o.lease_id) = 'postgres'", "true"),
		[]string{"alone: a renewal of a lease in Redis"}},
	{"many: a renewal waits for the lease", "renew_leases", removing(" skip locked"),
		[]string{"alone: a renewal of a locked lease"}},

	{"hand over: as durable as a grant to nobody", "hand_over",
		removing("    perform set_config('synchronous_commit', v_setting, true);"),
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

const lockLeaseSQL = "select from fence.leases where lock = $1 for update"

// togetherCall is a call of one of the functions, about one lease.
type togetherCall struct {
	function  string // with its arguments: $1 the lock, $2 the token
	of        func(*fixture) store.Lease
	owner, id string
}

func newestOrNone(s *fixture) store.Lease {
	if len(s.leases) == 0 {
		return store.Lease{}
	}
	return s.newest()
}

func acquiring(mode store.Mode) togetherCall {
	return togetherCall{of: newestOrNone, function: fmt.Sprintf("fence.acquire_leases(array[$1], array['together'], "+
		"array['principal'], array['%s'], array[3600000], array['together'], array[null::text])", mode)}
}

// acquiringOne is acquiring by the function for one lock.
func acquiringOne(mode store.Mode) togetherCall {
	return togetherCall{of: newestOrNone, function: fmt.Sprintf(
		"fence.acquire_one($1, 'together', 'principal', '%s', 3600000, 'together', null)", mode)}
}

func onLease(function string) togetherCall {
	return togetherCall{of: (*fixture).newest, owner: "$3", id: "$4", function: function}
}

var (
	toAcquire         = acquiring(store.Exclusive)
	toShare           = acquiring(store.Shared)
	toRelease         = onLease("fence.release_leases(array[$1], array[%s], array[%s::uuid], array[$2::bigint])")
	toReleaseFirst    = togetherCall{toRelease.function, (*fixture).first, "$3", "$4"}
	toAcquireOne      = acquiringOne(store.Exclusive)
	toShareOne        = acquiringOne(store.Shared)
	toReleaseOne      = onLease("fence.release_one($1, %s, %s::uuid, $2)")
	toReleaseFirstOne = togetherCall{toReleaseOne.function, (*fixture).first, "$3", "$4"}

	toRenew   = onLease("fence.renew_leases(array[$1], array[%s], array[%s::uuid], array[$2::bigint], array[7200000])")
	toShorten = onLease("fence.renew_leases(array[$1], array[%s], array[%s::uuid], array[$2::bigint], array[1000])")
)

func (c togetherCall) as(owner string) togetherCall {
	c.owner = "'" + owner + "'"
	return c
}

func (c togetherCall) with(id string) togetherCall {
	c.id = id
	return c
}

// count sends the call and returns how many leases were decided. It waits for no lock for long.
func (c togetherCall) count(ctx context.Context, s *fixture) (decided int, err error) {
	lease := c.of(s)
	sql, args := "select count(*) from "+c.function, []any{s.lock}
	if c.owner != "" {
		// All arguments are used, whatever replaces them.
		sql = fmt.Sprintf("with a as (select $3::text, $4::uuid) "+sql, c.owner, c.id)
		args = append(args, lease.Token, lease.OwnerID, lease.ID)
	}
	err = pgx.BeginFunc(ctx, s.SQL, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "set local lock_timeout = '200ms'"); err != nil {
			return err
		}
		return tx.QueryRow(ctx, sql, args...).Scan(&decided)
	})
	return decided, err
}

func (c togetherCall) decides(want int) step {
	return func(ctx context.Context, s *fixture) error {
		decided, err := c.count(ctx, s)
		if err == nil && decided != want {
			err = fmt.Errorf("%s decided %d, want %d", c.function, decided, want)
		}
		return err
	}
}

// together expects that the call decides the lease.
func together(call togetherCall) step { return call.decides(1) }

// leftAlone expects that the call does not decide the lease, and changes nothing.
func leftAlone(call togetherCall) step { return changingNothing(call.decides(0)) }

// leftAloneWhile expects it while another session holds a lock, which the statement takes.
func leftAloneWhile(statement string, call togetherCall) step {
	return func(ctx context.Context, s *fixture) error {
		return s.whileHolding(ctx, statement, s.lock, func() error { return s.do(ctx, call.decides(0)) })
	}
}

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

// handedOver releases the newest lease by fence.hand_over, for a gateway without waiters, and expects how the commit
// waits.
func handedOver(want string) step {
	return func(ctx context.Context, s *fixture) error {
		lease := s.newest()
		var setting string
		err := pgx.BeginFunc(ctx, s.SQL, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "select fence.hand_over($1, $2, $3, $4, gen_random_uuid())", lease.Lock, lease.OwnerID,
				lease.ID, lease.Token)
			if err != nil {
				return err
			}
			return tx.QueryRow(ctx, "show synchronous_commit").Scan(&setting)
		})
		if err == nil && setting != want {
			err = fmt.Errorf("the commit waits as of %s, want %s", setting, want)
		}
		return errors.Join(err, expectOpen(false)(ctx, s))
	}
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
