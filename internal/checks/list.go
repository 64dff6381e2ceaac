package checks

// ofTables are the checks of protected tables.
var ofTables = []Check{
	{
		Name: "table_problem", Severity: Error,
		SQL: `
			select p.table_name::text, p.problem from fence.protected p where p.problem is not null order by 1`,
		Advice: "Find out who changed the table. Then its owner calls fence.protect(table, template), which repairs the " +
			"triggers. If the table was dropped, call fence.unprotect(NUMBER).",
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
	},
	{
		Name: "observe", Severity: Notice,
		SQL: `
			select p.table_id::text, 'is observed: nothing is rejected'
			from fence.protected_tables p where p.mode = 'observe' order by 1`,
		Advice: "When all rejections that are recorded are as you expect, call fence.protect(table, template, 'enforce').",
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
		Advice: "An owner can disable the triggers. Let applications log in as a role that does not own the table " +
			"(fencegate migrate --app-role).",
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
		Advice: "A role with TRIGGER can replace the triggers of the fence. TRUNCATE is checked, but seldom needed. Revoke both.",
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
	},
	{
		Name: "superuser", Severity: Notice,
		SQL: `
			select r.rolname, 'is a superuser' from pg_roles r where r.rolsuper and coalesce(r.rolname = any ($1), r.rolcanlogin) order by 1`,
		Advice: "No fence stops a superuser. Applications must not log in as one.",
	},
}
