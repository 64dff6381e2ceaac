package checks

import "fmt"

// protectSQL is the cure that protects a table again, as it is now.
const protectSQL = `format('select fence.protect(%L, %L, %L);', p.table_id::text, p.template, p.mode)`

// leaveSQL is the cure that ends all memberships of the role r by which it may act as another.
func leaveSQL(other string) string {
	return `(select string_agg(format('revoke %I from %I', g.rolname, r.rolname)
		|| case when current_setting('server_version_num')::integer >= 160000 then format(' granted by %I', m.grantor::regrole) else '' end
		|| ';', ' ' order by g.rolname)
		from pg_auth_members m join pg_roles g on g.oid = m.roleid
		where m.member = r.oid and pg_has_role(g.oid, ` + other + `, 'member'))`
}

// revokeSQL is the cure that takes the right privilege on what from all in an ACL through whom the role r has it.
func revokeSQL(acl, privilege, what string) string {
	return fmt.Sprintf(`(select string_agg(format('revoke %%s on %%s from %%s;', %[2]s, %[3]s,
			case x.grantee when 0 then 'public' else quote_ident(pg_get_userbyid(x.grantee)) end), ' ')
		from aclexplode(%[1]s) x
		where x.privilege_type = %[2]s and (x.grantee = 0 or pg_has_role(r.oid, x.grantee, 'usage')))`, acl, privilege, what)
}

// settingSQL is the cure that gives a setting of the server a value, which is an expression, where the server has it from.
func settingSQL(name, value, then string) string {
	return fmt.Sprintf(`(select case
		when p.source in ('command line', 'environment variable')
			then format('%[1]s = %%s, in the %%s that PostgreSQL is started with, which precedes its files', %[2]s, p.source)
		when current_setting('allow_alter_system', true) = 'off'
			then format('%[1]s = %%s, in %%s; %[3]s', %[2]s, coalesce(p.sourcefile, 'postgresql.conf'))
		else format('alter system set %[1]s = %%s; %[3]s', %[2]s) end
		from pg_settings p where p.name = '%[1]s')`, name, value, then)
}

const (
	thenReload  = "select pg_reload_conf();"
	thenRestart = "-- then restart PostgreSQL"
)

// ofTables are the checks of protected tables.
var ofTables = []Check{
	{
		Name: "table_problem", Severity: Error,
		SQL: `
			select p.table_name, p.problem, case
				when p.problem ~ ': (select|alter|grant|revoke) ' then substring(p.problem from ': ((select|alter|grant|revoke) .*)$') || ';'
				when p.table_name ~ '^[0-9]+$' then format('select fence.unprotect(%s);', p.table_name)
				else format('select fence.protect(%L, %L, %L);', p.table_name, coalesce(p.template, 'TEMPLATE'), coalesce(p.mode, 'enforce'))
				end
			from fence.protected p where p.problem is not null order by 1`,
		Advice: "Find out who changed the table. Then its owner runs the SQL with which the problem ends, or calls " +
			"fence.protect(table, template), which repairs the triggers. If the table was dropped, call " +
			"fence.unprotect(NUMBER).",
		Sound: "no protected table has one",
	},
	{
		Name: "partition_truncate", Severity: Error,
		SQL: `
			select t.relid::text, format('partition of %s without the trigger fencegate_truncate', p.table_id), ` + protectSQL + `
			from fence.protected_tables p, fence.with_partitions(p.table_id) as t (relid)
			where t.relid <> p.table_id and not exists (
				select from pg_trigger g where g.tgrelid = t.relid and g.tgname = 'fencegate_truncate' and g.tgenabled = 'A')
			order by 1`,
		Advice: "Its rows are checked, but TRUNCATE of the partition is not. Call fence.protect(table, template) after " +
			"each attachment of a partition.",
		Sound: "each partition has its trigger",
	},
	{
		Name: "observe", Severity: Notice,
		SQL: `
			select p.table_id::text, 'is observed: nothing is rejected',
				format('select fence.protect(%L, %L, ''enforce'');', p.table_id::text, p.template)
			from fence.protected_tables p where p.mode = 'observe' order by 1`,
		Advice: "When all rejections that are recorded are as you expect, call fence.protect(table, template, 'enforce').",
		Sound:  "no table is only observed",
	},
}

// OfRoles are the checks of roles.
//
// A role "may act as" another if it is that role, or a member: it may then SET ROLE. Superusers may do anything. One
// check lists them, and the others leave them out.
var OfRoles = []Check{
	{
		Name: "table_owner", Severity: Warning,
		SQL: `
			select r.rolname, 'may act as the owner of ' || string_agg(p.table_id::text, ', ' order by p.table_id::text),
				string_agg(distinct case when r.oid = c.relowner then
					format('alter table %1$s owner to OWNER; grant select, insert, update, delete on %1$s to %2$I;', p.table_id, r.rolname)
					else ` + leaveSQL("c.relowner") + ` end, ' ')
			from fence.protected_tables p
			join pg_class c on c.oid = p.table_id
			join pg_roles r on coalesce(r.rolname = any ($1), r.rolcanlogin) and not r.rolsuper and pg_has_role(r.oid, c.relowner, 'member')
			group by r.oid, r.rolname order by 1`,
		Advice: "An owner can disable the triggers. Let applications log in as a role that does not own the table.",
		Sound:  "no application owns a protected table",
	},
	{
		Name: "table_rights", Severity: Warning,
		SQL: `
			select r.rolname, format('has the right %s on %s', a.name, string_agg(t.relid::text, ', ' order by t.relid::text)),
				string_agg(` + revokeSQL("c.relacl", "a.name", "t.relid") + `, ' ' order by t.relid::text)
			from fence.protected_tables p
			cross join fence.with_partitions(p.table_id) as t (relid)
			join pg_class c on c.oid = t.relid
			cross join (values ('TRIGGER'), ('TRUNCATE')) as a (name)
			join pg_roles r on coalesce(r.rolname = any ($1), true) and not r.rolsuper and not pg_has_role(r.oid, c.relowner, 'member')
				and has_table_privilege(r.oid, c.oid, a.name)
			group by r.rolname, a.name order by 1, a.name`,
		Advice: "A role with TRIGGER can replace the triggers of the fence. TRUNCATE is checked, but seldom needed.",
		Sound:  "only owners may replace the triggers",
	},
	{
		Name: "schema_owner", Severity: Warning,
		SQL: `
			select r.rolname, 'may act as the owner of the schema fence', case
				when r.oid <> n.nspowner then ` + leaveSQL("n.nspowner") + `
				else 'fencegate migrate --database-url OWNER_URL --app-role APP, and let applications log in as APP' end
			from pg_namespace n
			join pg_roles r on coalesce(r.rolname = any ($1), r.rolcanlogin) and not r.rolsuper and pg_has_role(r.oid, n.nspowner, 'member')
			where n.nspname = 'fence' and exists (select from fence.protected_tables)
			order by 1`,
		Advice: "It can change fences and functions. Only gateways and administrators should log in as this role.",
		Sound:  "no application may act as the owner",
	},
	{
		Name: "replication_role", Severity: Notice, VersionMin: 150000,
		SQL: `
			select r.rolname, 'may set session_replication_role',
				` + revokeSQL("(select a.paracl from pg_parameter_acl a where a.parname = 'session_replication_role')", "'SET'",
			"'parameter session_replication_role'") + `
			from pg_roles r
			where coalesce(r.rolname = any ($1), true) and not r.rolsuper and has_parameter_privilege(r.oid, 'session_replication_role', 'SET')
			order by 1`,
		Advice: "With it set to replica, the triggers of the fence still fire (ENABLE ALWAYS), but foreign keys and other " +
			"triggers do not. Revoke it from applications.",
		Sound: "no role may set it",
	},
	{
		Name: "superuser", Severity: Notice,
		SQL: `
			select r.rolname, 'is a superuser', case r.oid when 10 then 'let no application log in as it' -- it stays one
				else format('alter role %I nosuperuser;', r.rolname) end
			from pg_roles r where r.rolsuper and coalesce(r.rolname = any ($1), r.rolcanlogin) order by 1`,
		Advice: "No fence stops a superuser. Applications must not log in as one.",
		Sound:  "no role logs in as one",
	},
}

// ofNames says which names the roles of applications may use.
var ofNames = []Check{
	{
		Name: "sql_role", Severity: Notice,
		SQL: `
			select r.role_name, 'may use ' || case
				when r.prefixes is null then 'all names'
				else coalesce(nullif(array_to_string(r.prefixes, ', '), '') || ', and all names below', 'no name') end,
				format('select fence.allow_names(%L, ''NAME'');', r.role_name)
			from fence.sql_roles r order by 1`,
		Advice: "That is what it may guard, lease and write by SQL. To restrict a role: select fence.allow_names(role, name).",
		Sound:  "no role uses names by SQL",
	},
}

// ofFailovers are the checks of what a crash or a failover can lose, and of what makes it take long.
//
// pg_stat_replication shows a role without pg_read_all_stats that there are standbys, and not what they do.
var ofFailovers = []Check{
	{
		Name: "fsync", Severity: Error,
		SQL: `
			select 'fsync', 'is off', ` + settingSQL("fsync", "'on'", thenReload) + `
			where current_setting('fsync') = 'off'`,
		Advice: "A crash of the machine loses acknowledged writes, and can corrupt the fences.",
		Sound:  "is on",
	},
	{
		Name: "superseded", Severity: Error,
		SQL: `
			select 'database', format('is on timeline %s, and a gateway has seen timeline %s of system %s, which took over from it',
				l.timeline, l.superseded_by_timeline, l.superseded_by_system)
			from fence.lineage() l where l.superseded_by_system is not null`,
		Advice: "It is an old primary. Stop it, and make it a standby of the new one (pg_rewind, or a new base backup). To " +
			"go back to it on purpose: docs/runbooks/FencegateDatabaseWentBack.md.",
		Cure:  "pg_rewind --source-server='host=PRIMARY' --target-pgdata DIR",
		Sound: "no gateway has seen a successor",
	},
	{
		Name: "sequence_behind", Severity: Error,
		SQL: `
			select b.sequence::text, format('continues at or below %s, which a row has', b.newest)
			from fence.sequences_behind() b order by 1`,
		Advice: "Rows came without the sequence, as by logical replication (docs/replication.md): what inserts the next one " +
			"fails (23505).",
		Cure:  "select fence.accept_database()",
		Sound: "all continue after the numbers that rows have",
	},
	{
		Name: "full_page_writes", Severity: Warning,
		SQL: `
			select 'full_page_writes', 'is off', ` + settingSQL("full_page_writes", "'on'", thenReload) + `
			where current_setting('full_page_writes') = 'off'`,
		Advice: "A crash of the machine can leave half-written pages, unless the file system writes pages as a whole (ZFS).",
		Sound:  "is on",
	},
	{
		Name: "synchronous_commit", Severity: Warning,
		SQL: `
			select 'synchronous_commit', case s.source when 'client' then format('is %s in the URL of this connection, or in PGOPTIONS', s.reset_val)
					else format('is %s in the configuration', s.reset_val) end,
				case s.source when 'client' then 'take synchronous_commit out of --database-url, or out of PGOPTIONS'
					else ` + settingSQL("synchronous_commit", "'on'", thenReload) + ` end
			from pg_settings s
			where s.name = 'synchronous_commit' and s.reset_val in ('off', 'local')
				and s.source not in ('global', 'database', 'user', 'database user') -- below, each on its own
			union all
			select coalesce(nullif(concat_ws(' in ', 'role ' || r.rolname, 'database ' || d.datname), ''), 'all roles'),
				format('has the setting %s', c.setting), format('alter %s reset synchronous_commit;', case
					when r.oid is not null then format('role %I', r.rolname) || coalesce(' in database ' || quote_ident(d.datname), '')
					when d.oid is not null then format('database %I', d.datname) else 'role all' end)
			from pg_db_role_setting s
			left join pg_roles r on r.oid = s.setrole
			left join pg_database d on d.oid = s.setdatabase
			cross join unnest(s.setconfig) as c (setting)
			where c.setting ~* '^synchronous_commit=(off|false|no|0|local)$'
				and (s.setdatabase = 0 or d.datname = current_database())
			order by 1`,
		Advice: "off: a crash loses the last transactions of SQL clients (gateways use on instead). local: a failover loses " +
			"what no standby has, also of gateways.",
		Sound: "no setting lets commits not wait",
	},
	{
		Name: "asynchronous_standbys", Severity: Warning,
		SQL: `
			select 'synchronous_standby_names', format('is empty, and %s standbys are connected', count(*)),
				` + settingSQL("synchronous_standby_names", "quote_literal('NAME')", thenReload) + `
			from ` + standbysSQL + ` and current_setting('synchronous_standby_names') = ''
			having count(*) > 0`,
		Advice: "A failover loses acknowledged writes that the standby has not received yet. Name it in " +
			"synchronous_standby_names, or use Patroni's synchronous_mode.",
		Sound: "no standby is left asynchronous",
	},
	{
		Name: "no_synchronous_standby", Severity: Warning,
		Unseen: `case when current_setting('synchronous_standby_names') <> '' and exists (select from pg_stat_replication)
			and not pg_has_role('pg_read_all_stats', 'usage') then 'the role is no member of pg_read_all_stats' end`,
		See: "grant pg_read_all_stats to ROLE;",
		SQL: `
			select 'synchronous_standby_names', format('is %L, and no synchronous standby is connected',
				current_setting('synchronous_standby_names'))
			where current_setting('synchronous_standby_names') <> '' and not pg_is_in_recovery()
				and not exists (select from pg_stat_replication r where r.sync_state in ('sync', 'quorum'))`,
		Advice: "Commits wait until one is. Start the standby, or correct the names: " +
			"docs/runbooks/FencegateReplicationNotSynchronous.md.",
		Cure:  "systemctl start postgresql # on the standby",
		Sound: "commits that wait for a standby have one",
	},
	{
		Name: "prepared_transaction", Severity: Warning,
		SQL: `
			select x.gid, format('is prepared since %s by %s', x.prepared, x.owner), format('rollback prepared %L;', x.gid)
			from pg_prepared_xacts x where x.database = current_database() order by 1`,
		Advice: "It keeps the fences and rows locked that it wrote, also after a restart or failover. If nobody is about to " +
			"commit it, roll it back (rollback prepared).",
		Sound: "there is none",
	},
	{
		Name: "idle_slot", Severity: Warning,
		SQL: `
			select s.slot_name, format('is read by nobody, and keeps %s of the write-ahead log',
				pg_size_pretty(pg_wal_lsn_diff(pg_current_wal_lsn(), s.restart_lsn))),
				format('select pg_drop_replication_slot(%L);', s.slot_name)
			from pg_replication_slots s
			where not pg_is_in_recovery() and not s.active and not s.temporary and s.restart_lsn is not null
				and current_setting('max_slot_wal_keep_size') = '-1'
			order by 1`,
		Advice: "It keeps all of it until the disk is full. Drop the slot of a standby that does not return " +
			"(pg_drop_replication_slot), and set max_slot_wal_keep_size.",
		Sound: "no slot keeps the log for nobody",
	},
	{
		Name: "max_connections", Severity: Warning, Unseen: noGateway, See: "fencegate serve",
		SQL: `
			select 'max_connections', format('%s are for all roles, and %s gateways may use %s', n.available, count(*),
				sum(g.connections_max + 3)), ` + settingSQL("max_connections", "sum(g.connections_max + 3) - n.available + "+
			"current_setting('max_connections')::integer", thenRestart) + `
			from (select current_setting('max_connections')::integer
				- current_setting('superuser_reserved_connections')::integer) as n (available), ` + gatewaysSQL + `
			group by n.available having sum(g.connections_max + 3) > n.available`,
		Advice: "A gateway that finds no free connection is not ready, which shows at the next failover, when all connect " +
			"anew. Raise it, or lower --database-connections-max.",
		Sound: "there is room for all gateways",
	},
	{
		Name: "quorum", Severity: Notice,
		SQL: `
			select 'synchronous_standby_names', format('is %L: any of %s standbys confirms a commit',
				current_setting('synchronous_standby_names'), count(*))
			from ` + standbysSQL + ` and current_setting('synchronous_standby_names') ~* '^\s*any\s|\*'
			having count(*) > 1`,
		Advice: "A failover loses writes if it promotes another standby than the one that confirmed them. Stop the primary, " +
			"then promote the one that has received the most (pg_last_wal_receive_lsn); Patroni does so.",
		Sound: "no commit is confirmed by any of several",
	},
	{
		Name: "pg_rewind", Severity: Notice,
		SQL: `
			select 'wal_log_hints', 'is off, like data checksums', ` + settingSQL("wal_log_hints", "'on'", thenRestart) + `
			where current_setting('wal_log_hints') = 'off' and current_setting('data_checksums') = 'off'
				and exists (select from pg_stat_replication)`,
		Advice: "pg_rewind can't make an old primary a standby after a failover: that needs a new base backup.",
		Sound:  "can make an old primary a standby",
	},
}
