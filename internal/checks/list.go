package checks

// ofTables are the checks of protected tables.
var ofTables = []Check{
	{
		Name: "table_problem", Severity: Error,
		SQL: `
			select p.table_name::text, p.problem from fence.protected p where p.problem is not null order by 1`,
		Advice: "Find out who changed the table. Then its owner calls fence.protect(table, template), which repairs the " +
			"triggers. If the table was dropped, call fence.unprotect(NUMBER).",
		Cure:  "select fence.protect('TABLE', 'TEMPLATE')",
		Sound: "no protected table has one",
	},
	{
		Name: "partition_truncate", Severity: Error,
		SQL: `
			select t.relid::text, format('partition of %s without the trigger fencegate_truncate', p.table_id)
			from fence.protected_tables p, fence.with_partitions(p.table_id) as t (relid)
			where t.relid <> p.table_id and not exists (
				select from pg_trigger g where g.tgrelid = t.relid and g.tgname = 'fencegate_truncate' and g.tgenabled = 'A')
			order by 1`,
		Advice: "Its rows are checked, but TRUNCATE of the partition is not. Call fence.protect(table, template) after " +
			"each attachment of a partition.",
		Cure:  "select fence.protect('TABLE', 'TEMPLATE')",
		Sound: "each partition has its trigger",
	},
	{
		Name: "observe", Severity: Notice,
		SQL: `
			select p.table_id::text, 'is observed: nothing is rejected'
			from fence.protected_tables p where p.mode = 'observe' order by 1`,
		Advice: "When all rejections that are recorded are as you expect, call fence.protect(table, template, 'enforce').",
		Cure:   "select fence.protect('TABLE', 'TEMPLATE', 'enforce')",
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
			select r.rolname, 'may act as the owner of ' || string_agg(p.table_id::text, ', ' order by p.table_id::text)
			from fence.protected_tables p
			join pg_class c on c.oid = p.table_id
			join pg_roles r on coalesce(r.rolname = any ($1), r.rolcanlogin) and not r.rolsuper and pg_has_role(r.oid, c.relowner, 'member')
			group by r.rolname order by 1`,
		Advice: "An owner can disable the triggers. Let applications log in as a role that does not own the table.",
		Cure:   "alter table TABLE owner to OWNER; fencegate migrate --app-role ROLE",
		Sound:  "no application owns a protected table",
	},
	{
		Name: "table_rights", Severity: Warning,
		SQL: `
			select r.rolname, format('has the right %s on %s', a.name, string_agg(t.relid::text, ', ' order by t.relid::text))
			from fence.protected_tables p
			cross join fence.with_partitions(p.table_id) as t (relid)
			join pg_class c on c.oid = t.relid
			cross join (values ('TRIGGER'), ('TRUNCATE')) as a (name)
			join pg_roles r on coalesce(r.rolname = any ($1), true) and not r.rolsuper and not pg_has_role(r.oid, c.relowner, 'member')
				and has_table_privilege(r.oid, c.oid, a.name)
			group by r.rolname, a.name order by 1, a.name`,
		Advice: "A role with TRIGGER can replace the triggers of the fence. TRUNCATE is checked, but seldom needed.",
		Cure:   "revoke trigger, truncate on TABLE from ROLE",
		Sound:  "only owners may replace the triggers",
	},
	{
		Name: "schema_owner", Severity: Warning,
		SQL: `
			select r.rolname, 'may act as the owner of the schema fence'
			from pg_namespace n
			join pg_roles r on coalesce(r.rolname = any ($1), r.rolcanlogin) and not r.rolsuper and pg_has_role(r.oid, n.nspowner, 'member')
			where n.nspname = 'fence' and exists (select from fence.protected_tables)
			order by 1`,
		Advice: "It can change fences and functions. Only gateways and administrators should log in as this role.",
		Cure:   "revoke OWNER from ROLE",
		Sound:  "no application may act as the owner",
	},
	{
		Name: "replication_role", Severity: Notice, VersionMin: 150000,
		SQL: `
			select r.rolname, 'may set session_replication_role'
			from pg_roles r
			where coalesce(r.rolname = any ($1), true) and not r.rolsuper and has_parameter_privilege(r.oid, 'session_replication_role', 'SET')
			order by 1`,
		Advice: "With it set to replica, the triggers of the fence still fire (ENABLE ALWAYS), but foreign keys and other " +
			"triggers do not. Revoke it from applications.",
		Cure:  "revoke set on parameter session_replication_role from ROLE",
		Sound: "no role may set it",
	},
	{
		Name: "superuser", Severity: Notice,
		SQL: `
			select r.rolname, 'is a superuser' from pg_roles r where r.rolsuper and coalesce(r.rolname = any ($1), r.rolcanlogin) order by 1`,
		Advice: "No fence stops a superuser. Applications must not log in as one.",
		Cure:   "alter role ROLE nosuperuser",
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
				else coalesce(nullif(array_to_string(r.prefixes, ', '), '') || ', and all names below', 'no name') end
			from fence.sql_roles r order by 1`,
		Advice: "That is what it may guard, lease and write by SQL. To restrict a role: select fence.allow_names(role, name).",
		Cure:   "select fence.allow_names('ROLE', 'NAME')",
		Sound:  "no role uses names by SQL",
	},
}

// ofFailovers are the checks of what a crash or a failover can lose, and of what makes it take long.
//
// pg_stat_replication shows a role without pg_read_all_stats that there are standbys, and not what they do.
var ofFailovers = []Check{
	{
		Name: "fsync", Severity: Error,
		SQL:    `select 'fsync', 'is off' where current_setting('fsync') = 'off'`,
		Advice: "A crash of the machine loses acknowledged writes, and can corrupt the fences.",
		Cure:   "alter system set fsync = on; select pg_reload_conf()",
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
		Name: "full_page_writes", Severity: Warning,
		SQL:    `select 'full_page_writes', 'is off' where current_setting('full_page_writes') = 'off'`,
		Advice: "A crash of the machine can leave half-written pages, unless the file system writes pages as a whole (ZFS).",
		Cure:   "alter system set full_page_writes = on; select pg_reload_conf()",
		Sound:  "is on",
	},
	{
		Name: "synchronous_commit", Severity: Warning,
		SQL: `
			select 'synchronous_commit', format('is %s in the configuration', s.reset_val)
			from pg_settings s where s.name = 'synchronous_commit' and s.reset_val in ('off', 'local')
			union all
			select concat_ws(' in database ', 'role ' || r.rolname, d.datname), format('has the setting %s', c.setting)
			from pg_db_role_setting s
			left join pg_roles r on r.oid = s.setrole
			left join pg_database d on d.oid = s.setdatabase
			cross join unnest(s.setconfig) as c (setting)
			where c.setting in ('synchronous_commit=off', 'synchronous_commit=local')
				and (s.setdatabase = 0 or d.datname = current_database())
			order by 1`,
		Advice: "off: a crash loses the last transactions of SQL clients (gateways use on instead). local: a failover loses " +
			"what no standby has, also of gateways.",
		Cure:  "alter system set synchronous_commit = on; select pg_reload_conf()",
		Sound: "no setting lets commits not wait",
	},
	{
		Name: "asynchronous_standbys", Severity: Warning,
		SQL: `
			select 'synchronous_standby_names', format('is empty, and %s standbys are connected', count(*))
			from ` + standbysSQL + ` and current_setting('synchronous_standby_names') = ''
			having count(*) > 0`,
		Advice: "A failover loses acknowledged writes that the standby has not received yet. Name it in " +
			"synchronous_standby_names, or use Patroni's synchronous_mode.",
		Cure:  "alter system set synchronous_standby_names = 'NAME'; select pg_reload_conf()",
		Sound: "no standby is left asynchronous",
	},
	{
		Name: "no_synchronous_standby", Severity: Warning,
		Unseen: `case when current_setting('synchronous_standby_names') <> '' and exists (select from pg_stat_replication)
			and not pg_has_role('pg_read_all_stats', 'usage') then 'the role is no member of pg_read_all_stats' end`,
		SQL: `
			select 'synchronous_standby_names', format('is %L, and no synchronous standby is connected',
				current_setting('synchronous_standby_names'))
			where current_setting('synchronous_standby_names') <> '' and not pg_is_in_recovery()
				and not exists (select from pg_stat_replication r where r.sync_state in ('sync', 'quorum'))`,
		Advice: "Commits wait until one is. Start the standby, or correct the names: " +
			"docs/runbooks/FencegateReplicationNotSynchronous.md.",
		Cure:  "systemctl start postgresql, on the standby",
		Sound: "commits that wait for a standby have one",
	},
	{
		Name: "prepared_transaction", Severity: Warning,
		SQL: `
			select x.gid, format('is prepared since %s by %s', x.prepared, x.owner)
			from pg_prepared_xacts x where x.database = current_database() order by 1`,
		Advice: "It keeps the fences and rows locked that it wrote, also after a restart or failover. If nobody is about to " +
			"commit it, roll it back (rollback prepared).",
		Cure:  "rollback prepared 'GID'",
		Sound: "there is none",
	},
	{
		Name: "idle_slot", Severity: Warning,
		SQL: `
			select s.slot_name, format('is read by nobody, and keeps %s of the write-ahead log',
				pg_size_pretty(pg_wal_lsn_diff(pg_current_wal_lsn(), s.restart_lsn)))
			from pg_replication_slots s
			where not pg_is_in_recovery() and not s.active and not s.temporary and s.restart_lsn is not null
				and current_setting('max_slot_wal_keep_size') = '-1'
			order by 1`,
		Advice: "It keeps all of it until the disk is full. Drop the slot of a standby that does not return " +
			"(pg_drop_replication_slot), and set max_slot_wal_keep_size.",
		Cure:  "select pg_drop_replication_slot('SLOT')",
		Sound: "no slot keeps the log for nobody",
	},
	{
		Name: "max_connections", Severity: Warning, Unseen: noGateway,
		SQL: `
			select 'max_connections', format('%s are for all roles, and %s gateways may use %s', n.available, count(*),
				sum(g.connections_max + 3))
			from (select current_setting('max_connections')::integer
				- current_setting('superuser_reserved_connections')::integer) as n (available), ` + gatewaysSQL + `
			group by n.available having sum(g.connections_max + 3) > n.available`,
		Advice: "A gateway that finds no free connection is not ready, which shows at the next failover, when all connect " +
			"anew. Raise it, or lower --database-connections-max.",
		Cure:  "alter system set max_connections = N; -- restart",
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
			select 'wal_log_hints', 'is off, like data checksums'
			where current_setting('wal_log_hints') = 'off' and current_setting('data_checksums') = 'off'
				and exists (select from pg_stat_replication)`,
		Advice: "pg_rewind can't make an old primary a standby after a failover: that needs a new base backup.",
		Cure:   "alter system set wal_log_hints = on; -- restart",
		Sound:  "can make an old primary a standby",
	},
}
