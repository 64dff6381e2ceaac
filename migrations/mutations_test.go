package migrations_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/fencegate/fencegate/migrations"
)

// sqlMutations are functions that are broken on purpose, in one place, and a script that must notice.
var sqlMutations = []struct{ function, old, broken, script string }{
	{"guard", "and not exists (select from fence.policies)", "", "require_lease_id"},
	{"guard", "            and fence.may_use(guard.resource)\n", "", namesOfRoles},
	{"guard_by_rule", "fence.check_use(p_resource)", "1", namesOfRoles},
	{"acquire", "perform fence.check_use(lock);", "null;", namesOfRoles},
	{"is_allowed", "pg_catalog.pg_has_role(session_user, n.role_id, 'member')", "true", namesOfRoles},
	{"is_allowed", "session_user, n.role_id", "current_user, n.role_id", namesOfRoles},
	{"may_use", "has_function_privilege(session_user, ", "has_function_privilege(", namesOfRoles},
	{"names_of", "pg_has_role(p_role, a.grantee, 'member')", "has_function_privilege(p_role, p.oid, 'execute')",
		"a role that may use all names by a membership that it does not inherit"},
	{"guard_by_settings", "\n        and fence.may_use(p_resource);", ";", rowsOfRoles},
	{"rejection_error", "perform fence.check_use(p_resource);", "null;", rowsOfRoles},
	{"guard_by_settings", " and fence.may_use(p_resource) then", " then",
		"a role that may use some names: in the mode observe, a token for another name counts as none"},
	{"protected", "\n    where fence.may_use(p.template)", "", seenByRoles},
	{"held", " and fence.may_use(l.lock)", "", seenByRoles},
	{"is_held", "fence.may_use(p_lock)", "true", seenByRoles},
	{"renew_claim", "and fence.may_use(l.lock)", "", seenByRoles},
	{"protected", "\n    offset 0;", ";", seenByRoles},
	{"protection_problem", " and fence.may_use(p.template)", "", seenByRoles},
	{"claim_query", " and fence.check_readable(p_jobs)", "", seenByRoles},
	{"acquire", "not fence.may_use((v_answer.lease).lock)", "false", seenByRoles},
	{"guard", "perform fence.no_policy_came();", "", firstPolicy.name},
	{"guard", "admitted_in = pg_catalog.pg_current_xact_id()", "admitted_in = null", "insert, update, delete"},
	{"guard", "fence.fast_path_admits(f, guard.token, guard.sequence)", "true", "LF103 superseded"},
	{"guard_by_rule", "if exists (select from fence.admitted a where a.resource = p_resource) then", "if false then",
		"again in one transaction: the same number, and greater ones"},
	{"guard_by_rule", "v_ruling.verdict := 'token_reused'", "null",
		"LF106 after a lost answer to COMMIT, also after a newer grant"},
	{"guard_or", "raise exception 'undone' using errcode = 'LF100';", "null;",
		"a rejected try_guard in an open transaction delays no grant"},
	{"close_fence", "set open = false, admitted_in = null", "set open = false", "a newer grant or a release in the transaction takes its admission back"},
	{"guard_by_rule", "and p_sequence is not null", "",
		"same_token admits a token many times, and never says that it was committed"},
	{"raise_fences", "fence.raised_sequence(f, c.token, c.sequence)", "coalesce(c.sequence, 0)",
		"same_token admits a token many times, and never says that it was committed"},
	{"guard_by_rule", "v_digest is null or f.last_digest is null", "true",
		"a digest: the same transaction is a replay, another one is stale"},
	{"guard_by_rule", "convert_to('sql:', 'UTF8') || p_digest", "p_digest", "a digest is not that of a write by HTTP"},
	{"guard_by_rule", "p_token <= (select t.last_value from fence.tokens t)", "false",
		"repeatable read: the token of a grant since the snapshot is 40001"},
	{"guard_by_rule", "v_ruling.verdict in ('lease_expired', 'lease_mismatch')", "false",
		"repeatable read: a renewal since the snapshot is 40001, not LF105"},
	{"lock_write_tokens", "where (select true from fence.fences f where f.resource = n limit 1) is null", "",
		"external authority: any token that rises"},
	{"guard_by_rule", "array[false, true]", "array[true]",
		"a zombie is rejected without a wait while the holder's transaction is open"},
	{"token_from_settings", "v_setting <> v_option", "false", "a setting that outlives its transaction counts for no other"},
	{"guard_statement", "fence.guard_known(tg_relid)", "tg_relid",
		"the fence is locked before the rows where the resource is known before them"},
	{"guard_known", "and not exists (select from fence.admitted a where a.resource = v_resource)", "",
		"the settings do not count for a resource that is admitted already"},
	{"grant_lease", "set open = false, adopted_token = null, admitted_in = null\n", "set open = f.open\n",
		"repeatable read: a grant of a subtree above since the snapshot is 40001"},
	{"grant_lease", "update fence.fences f set open = f.open\n", "perform from fence.fences f\n",
		"repeatable read: a grant of a subtree below since the snapshot is 40001"},
	{"lock_below", "(f.open or f.adopted_token is not null or f.admitted_in = pg_current_xact_id())", "false",
		"a grant of a subtree closes the fence of a late holder below"},
	{"lock_subtree", "perform fence.lock_below(p_name, null);", "null;",
		"a subtree request that waits for a late holder's open transaction delays no request below"},
	{"take_tree_lock_alone", "v_ms := least(2 * v_ms, 40);", "v_ms := 10000;",
		"a subtree request that waits for an open transaction delays no request below"},
	{"lock_subtree", "where f.resource = any (fence.ancestors(p_name)) and f.open", "where false and f.open",
		"a grant of a subtree below waits for a transaction with the older token, which goes on"},
	{"report_rejection", "nextval(", "pg_sequence_last_value(",
		"rejections are counted, and those by try_guard recorded"},
	{"admitted", "and age(f.xmin) <= 0", "",
		"a fence that a restored dump says was admitted in a transaction of this number"},
	{"admitted", "f.admitted_in = pg_current_xact_id()", "f.admitted_in is not null", "an admission of another transaction"},
	{"trigger_functions", "(select %1$s from fencegate_old union all select %1$s from fencegate_new) u", "fencegate_new",
		"an update that moves a row needs both resources"},
	{"trigger_functions", "(v_old operator(pg_catalog.=) v_new) is not true", "false", "partitions"},
	{"trigger_functions", `' collate pg_catalog."C"'`, "''", "collations that take different texts for the same"},
	{"resource_expression", "pg_catalog.pg_typeof(%1$s.%2$I) operator(pg_catalog.=) any (%3$L::pg_catalog.regtype[])", "true",
		"an owner whose types have casts: its functions never run with fencegate's rights"},
	{"escape_segment", "set search_path = pg_catalog, pg_temp", "",
		"an owner whose types have casts: its functions never run with fencegate's rights"},
	{"trigger_functions", "and (select true from %1$s limit 1 offset 1) is null", "", "insert, update, delete"},
	{"trigger_functions",
		" and (select %s operator(pg_catalog.=) o.resource from (select %s from fencegate_old limit 1) r)", "/* %s %s */",
		"an update that moves a row needs both resources"},
	{"trigger_functions", "from (select %4$s from %1$s limit 1) r) o)", "from %1$s r limit 1) o)",
		"an owner who renames a column of the template: PostgreSQL reads row.column as column(row)"},
	{"trigger_functions", "c.relkind <> 'p'", "true",
		"an application without rights on any table: no trigger with functions of others' tables"},
	{"wanted_triggers", "p.inserts = 'free'", "false", "free inserts: a new row needs no token, a change of it does"},
	{"trigger_functions", "array_remove(array['INSERT', 'UPDATE'], case when v_free then 'INSERT' end)",
		"array['INSERT', 'UPDATE']", "free inserts: a new row needs no token, a change of it does"},
	{"prepare_protection", "inserts = coalesce(p_inserts, p.inserts)", "inserts = 'guarded'",
		"free inserts: a new row needs no token, a change of it does"},
	{"trigger_functions", "v_observe  boolean := p_protected.mode = 'observe'", "v_observe  boolean",
		"a mode is in force for transactions with an older snapshot"},
	{"claim_query", "(%4$s) operator(pg_catalog.<>) all (%5$L::pg_catalog.text[])", "(%5$L <> '' or %4$L <> '')",
		"a claim passes neither a waiter, nor a subtree lease, nor another's lease"},
	{"claim_query", "skip locked", "", "of two claims at once, one skips the rows of the other"},
	{"claim_query", "perform fence.check_tree_locks(v_template);", "null;", "a claim locks names below 64 others at most"},
	{"claim_query", "select %2$s.*", "select %2$s.*, %4$s as resource",
		"condition and order mean the columns of the table, whatever their names are"},
	{"claim_leases", "fence.within_tree_locks(v_found)", "v_found", "a claim locks names below 64 others at most"},
	{"within_tree_locks", "limit greatest(0, 64 - cardinality(v_trees))", "", "a claim locks names below 64 others at most"},
	{"make_fences", "set lock_timeout = '1ms'", "", "a claim waits for nobody"},
	{"try_below", "for update skip locked", "for update", "a claim waits for nobody"},
	{"claim", "or v_claimed operator(pg_catalog.=) 0 and (v_left operator(pg_catalog.<) jobs_max",
		"or v_claimed operator(pg_catalog.=) 0 and (true",
		"a claim of few goes past the rows whose fences are locked, until it has some"},
	{"claim_leases", "group by l order by min(n)", "group by l, n order by n",
		"rows of one resource are claimed under one lease, by one worker at a time"},
	{"acquire_leases", "r.metadata::json, r.principal, p_claim) as request", "r.metadata::json, r.principal) as request",
		"the leases of a claim are renewed together, and those that are lost are not"},
	{"claim_leases", "perform fence.check_outcome(v_answer.outcome);", "", "claims with bad arguments, and without rights"},
	{"renew_leases", "of l skip locked", "of l", "a renewal of a claim waits for nobody"},
	{"renew_claim", "filter (where r.status = 'live')", "filter (where false)",
		"the leases of a claim are renewed together, and those that are lost are not"},
	{"is_claim", "substr(p_lease_id::text, 15, 2) = '83'", "p_lease_id is not null",
		"claimed names are forgotten when no older token can be admitted"},
	{"sweep_ended", "where fence.is_claim(k.lease_id)", "where false",
		"claimed names are forgotten when no older token can be admitted"},
	{"sweep_claims", "not f.open", "true", "claimed names are forgotten when no older token can be admitted"},
	{"sweep_claims", "and f.last_version = 0", "", "claimed names are forgotten when no older token can be admitted"},
	{"sweep_claims", "where a.open and", "where false and",
		"claimed names are forgotten when no older token can be admitted"},
	{"sweep_claims", "and not fence.has_external_tokens(f.resource)", "",
		"claimed names are forgotten when no older token can be admitted"},
	{"sweep_claims", "not exists (select from fence.waiters w where w.lock = f.resource)", "true",
		"claimed names are forgotten when no older token can be admitted"},
	{"check_provider", "p.leases <> 'postgres'", "false", "claims with bad arguments, and without rights"},
	{"check_truncate", " for share;", ";", "a mode is in force for transactions with an older snapshot"},
	{"make_triggers", "%s %s trigger %I'", "%s enable trigger %3$I'",
		"replicated rows: session_replication_role = replica"},
	{"guard_by_settings", "fence.fast_path_admits(f, p_token, p_sequence)", "true",
		"a token in the settings of the transaction"},
	{"check_table_owner", "not pg_has_role(v_caller, v_owner, 'usage')", "false",
		"an owner who is not fencegate: no other trigger with its functions, and no other's table"},
	{"make_trigger_functions", "revoke all on function %1$s() from public", "select ''%1$s''",
		"an owner who is not fencegate: no other trigger with its functions, and no other's table"},
	{"guard_below", "where l.scope = 'subtree'", "", "a lease on the name alone admits nothing below"},
	{"guard_below", "a.resource = any (fence.ancestors(r.name)) and", "", "a guard above admits below it alone"},
	{"guard_below", "and octet_length(r.name) <= 512", "",
		"the mode observe, partitions, and a name that is too long, below a subtree lease"},
	{"guard_below", "where u.verdict = 'admitted'", "", "a subtree lease does not admit a row that a newer lease holds"},
	{"guard_below", "= 'same_token'", "= ''", "the policies of the rows count below a subtree lease"},
	{"guard_below", "(select p.require_lease_id from fence.policy_for(above.resource) p)", "false",
		"the policies of the rows count below a subtree lease"},
	{"check_rows", "coalesce(v_only = r.resource, r.resource is not null)", "true", "a token in the settings of the transaction"},
	{"report_rejection", "offset 99", "offset 999", "a change of the template and the mode, and the end of the protection"},
	{"report_rejection", "offset 99", "offset 999", noForgedCounts},
	{"check_truncate", "if not exists (select from fence.admitted a where a.resource = v_template) then", "if false then",
		"truncate"},
	{"prepare_protection", "when dependent_objects_still_exist then", "when division_by_zero then",
		"an owner who uses its row function elsewhere does not stop others from protecting tables"},
	{"replaceable_by", "a.privilege_type = 'TRIGGER'", "false",
		"a role with the right to replace triggers is shown"},
	{"wanted_triggers", "pg_get_triggerdef(t.oid) is distinct from d.definition", "false",
		"what the owner of the table can do is shown"},
	{"unprotect", "a.relid <> p_table", "false", "a protected table that gets children, or becomes a partition"},
	{"namesake", "pg_partition_root(c.oid)", "c.oid", "the name of a protected table that another table has"},
	{"prepare_protection", "case when fence.namesake(p) is null then excluded.table_name else p.table_name end",
		"excluded.table_name", "the name of a protected table that another table has"},
	{"make_triggers", "p.mode = 'enforce' or w.problem is not null", "true", "observe waits for no writer, enforce does"},
	{"make_triggers", "p.mode = 'enforce' or w.problem is not null", "w.problem is not null",
		"observe waits for no writer, enforce does"},
}

func allScripts() []script {
	return slices.Concat([]script{firstPolicy, forgetScript}, guardScripts, ruledScripts, nestedScripts, treeLockScripts,
		orderScripts, protectScripts, replacedScripts, belowScripts, namesScripts, settingsScripts, attackScripts,
		claimScripts, rejectionScripts)
}

// TestMutations breaks the functions, one place at a time, and checks that the script fails.
func TestMutations(t *testing.T) {
	t.Parallel()
	scripts := map[string]script{}
	for _, s := range allScripts() {
		scripts[s.name] = s
	}
	for _, m := range sqlMutations {
		t.Run(m.function+" "+m.old, func(t *testing.T) {
			t.Parallel()
			s, known := scripts[m.script]
			source, _ := migrations.GuardSource(m.function)
			if !known || strings.Count(source, m.old) != 1 {
				t.Fatalf("there is no script %q, or the text is there %d times, want once", m.script,
					strings.Count(source, m.old))
			}
			url, variables := protectedDatabase(t)
			exec(t, connect(t, url), strings.Replace(source, m.old, m.broken, 1))
			err := s.run(t.Context(), url, variables)
			if err == nil {
				t.Errorf("the script %q did not notice", m.script)
			}
			t.Log(err)
		})
	}
}
