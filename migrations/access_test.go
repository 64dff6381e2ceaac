package migrations_test

import "strings"

// accessScripts are about keys, what administrators may do, and what their calls acknowledge.
var accessScripts = []script{
	{"keys: created, rotated and revoked", strings.ReplaceAll(`
		A delete from fence.keys; select coalesce(max(id), 0) from fence.audit  -- $before
		A select changes from fence.key_changes  -- $n
		A select id from fence.create_key('aaaaaaaaaa', ARGS, null, 2)  -- aaaaaaaaaa
		A select id from fence.create_key('bbbbbbbbbb', ARGS, 3600000, 2)  -- bbbbbbbbbb
		A select id from fence.create_key('cccccccccc', ARGS, null, 2)  -- !54000 2 live keys
		A select string_agg(id, ' ' order by id), min(changes) - $n from fence.live_keys(-1)  -- aaaaaaaaaa bbbbbbbbbb|2
		A select count(*) from fence.live_keys($n + 2)  -- 0
		A select id from fence.rotate_key('bbbbbbbbbb', 'cccccccccc', sha256('c'), 'admin', null, 0, 2)  -- cccccccccc
		A select principal, grants, round(extract(epoch from expires_at - created_at)) from fence.keys
			where id = 'cccccccccc'  -- p|{observe:}|3600
		A select string_agg(id, ' ' order by id) from fence.live_keys($n + 2)  -- aaaaaaaaaa cccccccccc
		A select fence.rotate_key('bbbbbbbbbb', 'dddddddddd', sha256('d'), 'admin', null, 0, 9) is null  -- t
		A select changes from fence.key_changes  -- $n
		A select id, revoked_at is not null from fence.revoke_key('aaaaaaaaaa')  -- aaaaaaaaaa|t
		A select r.revoked_at = k.revoked_at from fence.keys k, fence.revoke_key('aaaaaaaaaa') r where k.id = r.id  -- t
		A select id is null from fence.revoke_key('zzzzzzzzzz')  -- t
		A select string_agg(id, ' ' order by id), min(changes) - $n from fence.live_keys(-1)  -- cccccccccc|3
		A select fence.rotate_key('aaaaaaaaaa', 'dddddddddd', sha256('d'), 'admin', null, 0, 9) is null  -- t
		A select string_agg(concat_ws(' ', action, details ->> 'key_id', details ->> 'new_key_id'), ', ' order by id)
			from fence.audit where id > $before  -- key_created aaaaaaaaaa, key_created bbbbbbbbbb, `+
		`key_rotated bbbbbbbbbb cccccccccc, key_created cccccccccc, key_revoked aaaaaaaaaa
		B begin; select id from fence.revoke_key('cccccccccc')  -- cccccccccc
		A select fence.rotate_key('cccccccccc', 'dddddddddd', sha256('d'), 'admin', null, 0, 9) is null  -- waits
		B commit
		A ...  -- t`, "ARGS", argsOfKey)},
	{"keys: those that ended long ago, or beyond as many as may be live, are deleted", strings.ReplaceAll(`
		A delete from fence.keys; select count(*) from (values ('aaaaaaaaaa'), ('bbbbbbbbbb')) v (id),
			fence.create_key(v.id, ARGS, null, 9)  -- 2
		A update fence.keys set created_at = created_at - interval '90 days', expires_at = now() - interval '31 days'
			where id = 'bbbbbbbbbb'
		A update fence.keys set revoked_at = now() - interval '29 days' where id = 'aaaaaaaaaa'
		A select count(*) from (values ('cccccccccc'), ('dddddddddd')) v (id), fence.create_key(v.id, ARGS, null, 2)  -- 2
		A select string_agg(id, ' ' order by id) from fence.keys  -- aaaaaaaaaa cccccccccc dddddddddd
		A select fence.revoke_key('cccccccccc'); select id from fence.create_key('eeeeeeeeee', ARGS, null, 2)  -- eeeeeeeeee
		A select string_agg(id, ' ' order by id) from fence.keys  -- aaaaaaaaaa cccccccccc dddddddddd eeeeeeeeee
		A select fence.revoke_key('eeeeeeeeee'); select id from fence.create_key('ffffffffff', ARGS, null, 2)  -- ffffffffff
		A select string_agg(id, ' ' order by id) from fence.keys  -- cccccccccc dddddddddd eeeeeeeeee ffffffffff`, "ARGS", argsOfKey)},
	{"keys: their uses are noted in one order, and none goes back", strings.ReplaceAll(`
		A delete from fence.keys; select count(*) from (values ('aaaaaaaaaa'), ('bbbbbbbbbb'), ('cccccccccc')) v (id),
			fence.create_key(v.id, ARGS, null, 9)  -- 3
		A select fence.note_key_uses('{bbbbbbbbbb}', '{1000000}'), fence.note_key_uses('{bbbbbbbbbb}', '{5000000}')
		A select string_agg(id, ' ' order by id) from fence.keys
			where last_used_at between clock_timestamp() - interval '4000 s' and clock_timestamp()  -- bbbbbbbbbb
		A select fence.note_key_uses('{cccccccccc}', '{0}')
		A update fence.keys set description = 'behind the others in the table' where id = 'aaaaaaaaaa'
		B begin; select from fence.keys where id = 'aaaaaaaaaa' for update
		A select fence.note_key_uses('{cccccccccc}', '{0}')
		A set enable_indexscan = off; set enable_bitmapscan = off
		A select fence.note_key_uses('{bbbbbbbbbb,aaaaaaaaaa}', '{0,0}')  -- waits
		B select id from fence.keys where id = 'bbbbbbbbbb' for update nowait  -- bbbbbbbbbb
		B rollback
		A ...`, "ARGS", argsOfKey)},
	{"an administrator of some names may do 10,000 actions in a day", `
		A select 'actor ' || coalesce(max(id), 0) from fence.audit  -- $actor
		A begin; insert into fence.audit (action, name, details, principal, address, at) select 'policy_set', '', '{}', '$actor',
			'', clock_timestamp() - case when n = 1 then interval '25 hours' else interval '23 hours' end
			from generate_series(1, 10000) n
		A insert into fence.audit (action, name, details, principal, address) values
			('access_refused', '', '{}', '$actor', ''), ('policy_set', '', '{}', 'other $actor', '')
		A select fence.check_actor('$actor', true)  -- $actor
		A insert into fence.audit (action, name, details, principal, address) values ('policy_set', '', '{}', '$actor', '')
		A savepoint s; select fence.check_actor('$actor', true)  -- !LF007 10000
		A rollback to s; select fence.check_actor('$actor', false)  -- $actor
		A select fence.check_actor('other $actor', true)  -- other $actor
		A update fence.audit set principal = 'anonymous' where principal = '$actor';
			select fence.check_actor('anonymous', true)  -- anonymous
		A update fence.audit set principal = 'sql:' || session_user where principal = 'anonymous';
			select fence.note_action('policy_set', '', '{}'); select count(*) > 9999 from fence.audit
			where principal = 'sql:' || session_user  -- t
		A rollback`},
	{"what is acknowledged is on disk", durably(
		"select fence.accept_database()", "select fence.create_key('aaaaaaaaaa', "+argsOfKey+", null, 999)",
		"select fence.transact('{none}', '{1}', '{1}', '{null}', '', '{}', '{}', '{}', '{}', '{}', '{}')",
		"select fence.revoke_key('zzzzzzzzzz')", "select fence.rotate_key('zzzzzzzzzz', '', '', '', 0, 0, 0)",
		"select test.policy('durable')", "select fence.delete_policy('durable')",
		"select test.policy('durable', p_authority => 'external'); set local synchronous_commit = off; "+
			"select fence.set_fence('durable', 7, 1)")},
}

// orderScripts hold the first name and look at the second, whose row comes first in the table: no call has locked it
// while it waits, whatever the plan.
var orderScripts = []script{
	{"fences of write tokens are locked in the order of their names", `
		A set enable_indexscan = off; set enable_bitmapscan = off; set enable_indexonlyscan = off
		A insert into fence.fences (resource) values ('ordered/2'), ('ordered/1')
		B begin; select from fence.fences where resource = 'ordered/1' for update
		A select fence.lock_write_tokens('{ordered/2,ordered/1}', '{1,1}', true)  -- waits
		B select resource from fence.fences where resource = 'ordered/2' for update nowait  -- ordered/2
		B rollback
		A ...`},
	{"fences of the rows of a statement are locked in the order of their names", `
		A create table ordered_rows (id text); select fence.protect('ordered_rows', 'ordered-rows/{id}')
		A select test.grant('ordered-rows', 'exclusive', 'subtree')  -- $t
		A select fence.guard('ordered-rows/2', $t, 1); select fence.guard('ordered-rows/1', $t, 1)
		B begin; select from fence.fences where resource = 'ordered-rows/1' for update
		A begin; select fence.set_token($t, 2);
			select fence.check_rows('ordered_rows'::regclass, '{ordered-rows/2,ordered-rows/1}', false)  -- waits
		B select resource from fence.fences where resource = 'ordered-rows/2' for update nowait  -- ordered-rows/2
		B rollback
		A ...
		A rollback; select test.release('ordered-rows', $t)`},
	{"fences from which others adopt a token are locked in the order of their names, with them", `
		A insert into fence.fences (resource, granted_token, subtree_token, open)
			values ('ordered-tree/2', 2, 2, true), ('ordered-tree/1', 1, 1, true), ('ordered-tree/1/x', 0, null, false)
		B begin; select from fence.fences where resource = 'ordered-tree/1/x' for update
		A select fence.lock_write_tokens('{ordered-tree/2/x,ordered-tree/1/x}', '{2,1}', true)  -- waits
		B select resource from fence.fences where resource = 'ordered-tree/2' for update nowait  -- ordered-tree/2
		B rollback
		A ...
		A update fence.fences set open = false where resource in ('ordered-tree/1', 'ordered-tree/2')`},
	{"a request for a subtree locks fences below in the order of their names", `
		A set enable_indexscan = off; set enable_bitmapscan = off; set enable_indexonlyscan = off
		A insert into fence.fences (resource, open) values ('ordered-below/2', true), ('ordered-below/1', true)
		B begin; select from fence.fences where resource = 'ordered-below/1' for update
		A select fence.lock_subtree('ordered-below', 'exclusive')  -- waits
		B select resource from fence.fences where resource = 'ordered-below/2' for update nowait  -- ordered-below/2
		B rollback
		A ...`},
}

// argsOfKey are arguments of fence.create_key, from the digest to who creates it.
const argsOfKey = "sha256(''), 'p', '', '{observe:}', 'admin'"

// durably is a script of calls after which a commit waits for the disk, whatever the session says.
func durably(calls ...string) string {
	var steps strings.Builder
	for _, call := range calls {
		steps.WriteString("A begin; set local synchronous_commit = off; " + call +
			"; select current_setting('synchronous_commit')  -- on\nA rollback\n")
	}
	return steps.String()
}

// rejectionScripts are about what a rejected transaction is told. Most call fence.rejection_error itself, which gives the
// whole text.
var rejectionScripts = []script{
	{"the hint fits the key of the row and the tokens of the transaction", `
		A create table hinted (a text, id integer generated always as identity); select fence.protect('hinted', 'hinted/{a}');
			create table hinted_id (id integer generated always as identity); select fence.protect('hinted_id', 'hinted/{id}');
			create table hinted_a (a text default 'x'); select fence.protect('hinted_a', 'hinted/a/{a}')
		A insert into hinted values ('y')  -- !LF101 Begin a transaction, call fence.guard('hinted/y', token) first
		A insert into hinted_id default values  -- !LF101 The database makes the key of a new row
		A insert into hinted_a default values  -- !LF101 The database makes the key of a new row
		A select test.grant('hinted/a/x'); insert into hinted_a default values  -- !LF101 Begin a transaction
		A begin; select fence.set_token(null, null, 'hinted/z'); insert into hinted values ('y')  -- !LF101 Begin a transaction
		A rollback; select test.grant('hinted')  -- $t
		A begin; select fence.guard('hinted', $t); insert into hinted values ('y')  -- !LF101 with the scope subtree
		A rollback; insert into hinted values (repeat('y', 505))  -- !LF101 this transaction has no fencing token for it
		A insert into hinted values (repeat('y', 506))  -- !LF101 has 513 bytes, the limit is 512
		A begin; select fence.set_token($t, 9); insert into hinted values (repeat('y', 506))  -- !LF101 has 513 bytes`},
	{"the advice after a stale token", `
		A select hint from fence.rejection_error('r', 9, null, row('token_stale', 'reused', true, 9, 9, 0, 1), null)
			-- A token without a sequence admits one transaction. It was committed; whether it was this one, repeated, is ` +
		`not known. Number the transactions of one token: fence.guard(resource, token, sequence), each sequence ` +
		`greater than the one before.
		A select left(hint, 10) from fence.rejection_error('r', 9, 1, row('token_stale', 'reused', true, 9, 9, 0, 1), null)
			-- Number the
		A select left(hint, 10) from fence.rejection_error('r', 9, null, row('token_stale', 'reused', true, 9, 9, 2, 1), null)
			-- Number the
		A select message from fence.rejection_error('r', 9, null, row('token_stale', 'shared', false, 9, 0, 0, 0), null)
			-- r: the token 9 is that of a shared lease, which cannot write
		A select message from fence.rejection_error('r', 8, null, row('token_stale', 'superseded', true, 9, 0, 0, 0), null)
			-- r: the token 8 is stale: the newest token is 9
		A select left(hint, 8) from fence.rejection_error('r', 8, null, row('token_unknown', '', true, 7, 0, 0, 0), null)
			-- Pass the`},
	{"a lease_id is that of one lease", `
		A select test.grant('shown/1')  -- $t
		A select test.grant('shown/2')  -- $u
		A select fence.has_lease_id('shown/1', $t, test.lease('shown/1', $t)),
			fence.has_lease_id('shown/2', $t, test.lease('shown/1', $t)),
			fence.has_lease_id('shown/1', $u, test.lease('shown/1', $t)),
			fence.has_lease_id('shown/1', $t, test.lease('shown/2', $u))  -- t|f|f|f`},
	{"the leases that run are shown, and the table of those alone that were claimed", `
		A select test.grant('held/1'), test.grant('held/2'), test.expire('held/2')
		A select test.grant('held/3')  -- $t
		A select test.release('held/3', $t); update fence.leases set expires_at = 'infinity' where lock = 'held/3'
		A update fence.leases set metadata = '{"table": "x"}' where lock = 'held/1'
		A select string_agg(lock, ' '), count(table_name) from fence.held where lock like 'held/%'  -- held/1|0`},
	{"a text in an error has 100 characters at most", `
		A select fence.quote_begin(repeat('x', 100)) = quote_literal(repeat('x', 100)),
			fence.quote_begin(repeat('x', 101)) = quote_literal(repeat('x', 100) || '…')  -- t|t`},
}
