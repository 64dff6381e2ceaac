package checks

const (
	// standbysSQL are the standbys, which each role sees. Of their states it sees none without pg_read_all_stats.
	standbysSQL = `pg_stat_replication r where coalesce(r.application_name, '') !~ '^pg_(basebackup|receivewal)$'`
	// gatewaysSQL are the gateways that serve.
	gatewaysSQL = `fence.gateway_states g where not g.ended and g.seen_at > clock_timestamp() - interval '10 s'`

	noGateway = `case when not exists (select from ` + gatewaysSQL + `) then 'no gateway serves now' end`
	inStandby = `case when pg_is_in_recovery() then 'this server is a standby' end`
)

// ofOperation are the checks of the rest of docs/production.md that can be seen in the database.
var ofOperation = []Check{
	{
		Name: "standby", Severity: Warning, Unseen: inStandby, See: "fencegate check --database-url PRIMARY_URL",
		SQL:    `select 'database', 'no standby is connected' where not exists (select from ` + standbysSQL + `)`,
		Advice: "While this server is down, nothing is granted or written; if it is lost, so is all since the last backup.",
		Cure:   "pg_basebackup --write-recovery-conf --dbname 'host=PRIMARY user=replicator' --pgdata DIR",
		Sound:  "at least one is connected",
	},
	{
		Name: "backup", Severity: Warning,
		Unseen: `case when current_setting('archive_mode') <> 'off' then (
			select 'nothing was archived yet' from pg_stat_archiver a
			where a.last_archived_time is null and a.last_failed_time is null) end`,
		See: "select pg_switch_wal();",
		SQL: `
			select 'archive_mode', 'is off, and nobody receives the write-ahead log: no backup is seen',
				` + settingSQL("archive_command", "quote_literal('COMMAND')", "") + ` || ` + settingSQL("archive_mode", "'on'", thenRestart+", and take a base backup") + `
			where current_setting('archive_mode') = 'off'
				and not exists (select from pg_stat_replication r where r.application_name ~ 'receive_?wal')
			union all
			select 'archive_command', format('fails: %s at %s', a.last_failed_wal, a.last_failed_time),
				` + settingSQL("archive_command", "quote_literal('COMMAND')", thenReload) + `
			from pg_stat_archiver a
			where current_setting('archive_mode') <> 'off'
				and a.last_failed_time > coalesce(a.last_archived_time, '-infinity')`,
		Advice: "A standby repeats each mistake, so it is no backup. Dumps and snapshots can't be seen here. Restore one for " +
			"trial: docs/backup.md.",
		Sound: "the write-ahead log is archived; base backups and dumps can't be seen here",
	},
	{
		Name: "idle_in_transaction_session_timeout", Severity: Warning,
		SQL: `
			select p.name, 'is 0 for ' || string_agg(r.rolname, ', ' order by r.rolname),
				string_agg(distinct format('alter %s set idle_in_transaction_session_timeout = ''1min'';', case
					when s.setrole = r.oid and s.setdatabase = d.oid then format('role %I in database %I', r.rolname, d.datname)
					when s.setrole = r.oid then format('role %I', r.rolname)
					else format('database %I', d.datname) end), ' ')
			from pg_roles r
			cross join pg_database d
			cross join pg_settings p
			left join lateral (
				select s.setrole, s.setdatabase, split_part(c.setting, '=', 2) as value
				from pg_db_role_setting s, unnest(s.setconfig) as c (setting)
				where s.setrole in (0, r.oid) and s.setdatabase in (0, d.oid) and split_part(c.setting, '=', 1) = p.name
				order by s.setrole = 0, s.setdatabase = 0 limit 1) s on true
			where d.datname = current_database() and p.name = 'idle_in_transaction_session_timeout'
				and r.rolcanlogin and (not r.rolsuper or r.rolname = current_user)
				and has_database_privilege(r.oid, d.oid, 'connect')
				and coalesce(s.value, case
					when p.source in ('global', 'database', 'user', 'database user', 'client') then p.boot_val else p.reset_val end) ~ '^0'
			group by p.name`,
		Advice: "A program that forgets a transaction keeps the fences locked that it wrote, and makes busy locks slow.",
		Sound:  "is set for all roles that may connect",
	},
	{
		Name: "gateway_role", Severity: Warning,
		SQL: `
			with gateways as (
				select a.usesysid as role from pg_stat_activity a
				where a.datname = current_database() and a.application_name = 'fencegate prober')
			select distinct r.rolname, 'may act as the owner of the schema fence'
			from pg_namespace n, pg_roles r
			where n.nspname = 'fence' and pg_has_role(r.oid, n.nspowner, 'member') and (r.oid in (select role from gateways)
				or r.rolname = current_user and not exists (select from gateways))
			order by 1`,
		Advice: "It is the role of the gateways, or, while none serves, of this connection. Who takes over a gateway can then " +
			"change fences and functions.",
		Cure:  "createuser gateway && fencegate migrate --database-url OWNER_URL --gateway-role gateway",
		Sound: "gateways do not own the schema",
	},
	{
		Name: "gateways", Severity: Warning, Unseen: noGateway, See: "fencegate serve",
		SQL:    `select 'gateways', 'one serves' from ` + gatewaysSQL + ` having count(*) < 2`,
		Advice: "While it is restarted or down, nothing is granted or written.",
		Cure:   "fencegate serve # on a second machine",
		Sound:  "two or more serve",
	},
	{
		Name: "gateway_versions", Severity: Warning, Unseen: noGateway, See: "fencegate serve",
		SQL: `
			select 'gateways', 'are of the versions ' || string_agg(distinct g.version, ', ')
			from ` + gatewaysSQL + ` having count(distinct g.version) > 1`,
		Advice: "That is for the minutes of an upgrade: what the newer one adds depends on which gateway answers.",
		Cure:   "systemctl restart fencegate # where the older one runs",
		Sound:  "all are of one",
	},
}
