package checks

// OfRows are the checks of what fencegate keeps: that fences, leases, records and the token sequence are of one moment,
// as a restore should leave them. They read all rows, each in one statement, and show at most 100 findings each. They
// use none of the functions that decide about a grant or a write.
var OfRows = []Check{
	{
		Name: "tokens_behind", Severity: Error,
		// The next check finds a lease with a token above its fence's. While a jump is pending, what it will reach counts
		// (fence.jump).
		SQL: `
			select 'fence.tokens', format('continues after %s, and token %s was granted', s.reached, n.newest)
			from (select max(f.granted_token) as newest from fence.fences f) n,
				(select coalesce(l.newest_token, greatest(t.last_value + (1::bigint << 32),
					(extract(epoch from clock_timestamp() - timestamptz '2025-01-01 00:00:00Z') * (1 << 20))::bigint)) as reached
				from fence.tokens t, fence.lineage() l) s
			where n.newest > s.reached`,
		Advice: "The sequence was restored without the leases and fences, or set back: a name without a fence could get a " +
			"token that was granted before. Call fence.accept_database(TOKEN) with the granted one. (Without a restore: another " +
			"lock service issued greater tokens of a name before. The same call ends the error.)",
	},
	{
		Name: "fence_behind_lease", Severity: Error,
		SQL: `
			select l.lock, format('token %s was granted, and the fence %s', l.fencing_token,
				case when f.resource is null then 'is missing' else 'knows none above ' || f.granted_token end)
			from fence.leases l left join fence.fences f on f.resource = l.lock
			where f.resource is null or f.granted_token < l.fencing_token
			union all
			select l.lock, format('token %s was granted on the subtree, and its fence knows none above %s', l.fencing_token,
				coalesce(f.subtree_token, 0))
			from fence.leases l join fence.fences f on f.resource = l.lock
			where l.scope = 'subtree' and coalesce(f.subtree_token, 0) < l.fencing_token
			limit 100`,
		Advice: "Leases and fences are of different moments: a token older than the lease's could write. Restore the schema " +
			"fence as a whole, from one backup.",
	},
	{
		Name: "fence_open", Severity: Error,
		SQL: `
			select f.resource::text, format('token %s may write, and its lease %s', f.token,
				case when l.lock is null then 'is missing' when l.ended_at is null then 'is ' || l.mode || ', ' || l.scope
					else 'was ' || l.end_reason end)
			from (
				select resource, granted_token as token, subtree_token = granted_token as subtree from fence.fences where open
				union all
				select resource, adopted_token, true from fence.fences where adopted_token is not null) f
			left join fence.leases l on l.fencing_token = f.token
				and (l.lock = f.resource or l.scope = 'subtree' and starts_with(f.resource, l.lock || '/'))
			where l.lock is null or l.mode = 'shared' or l.end_reason in ('released', 'broken') or f.subtree and l.scope = 'node'
			limit 100`,
		Advice: "Leases and fences are of different moments: a holder that has released could write. Restore the schema " +
			"fence as a whole; or acquire the lock and release it, which closes the fence.",
	},
	{
		Name: "lease_end", Severity: Error,
		SQL: `
			select l.lock, format('token %s was granted at %s and %s, and its lease ran until %s at most', l.fencing_token,
				l.granted_at, concat_ws(', ', coalesce('ended at ' || l.ended_at, 'has not ended'), l.end_reason), l.expires_at)
			from fence.leases l
			where greatest(l.granted_at, l.ended_at) > l.expires_at or (l.ended_at is null) <> (l.end_reason is null)
			limit 100`,
		Advice: "Somebody changed leases: lists show that two leases ran at once. No write depends on it. Restore the schema " +
			"fence as a whole, from one backup.",
	},
	{
		Name: "fence_behind_record", Severity: Error,
		// An administrator may set the fence of external tokens back (fence.set_fence).
		SQL: `
			select r.resource::text, format('record %s has version %s and token %s, and the fence %s', r.key, r.version,
				r.fencing_token, case when f.resource is null then 'is missing'
					else format('is at version %s and token %s', f.last_version, f.last_token) end)
			from fence.records r left join fence.fences f on f.resource = r.resource
			where f.resource is null or r.version > f.last_version
				or r.fencing_token > f.last_token
					and (select p.authority from fence.policy_for(r.resource) p) is distinct from 'external'
			limit 100`,
		Advice: "Records and fences are of different moments: a write that was late before could be admitted. Restore the " +
			"schema fence as a whole, from one backup.",
	},
	{
		Name: "clock_behind", Severity: Warning,
		SQL: `
			select 'clock', format('is at %s, and a lease was granted at %s', clock_timestamp(), n.newest)
			from (select max(l.granted_at) as newest from fence.leases l) n
			where n.newest > clock_timestamp() + interval '1 minute'`,
		Advice: "Tokens jump by this clock. Set it right. If a gateway was started before: call fence.accept_database(TOKEN) " +
			"with the newest token that you know of.",
	},
	{
		Name: "rows", Severity: Notice,
		SQL: `
			select 'database', format('%s fences, %s leases, %s records; tokens %s',
				(select count(*) from fence.fences), (select count(*) from fence.leases), (select count(*) from fence.records),
				case when l.newest_token is null then 'jump before the next grant'
					else 'continue after ' || l.newest_token || coalesce(', and jumped last at ' || i.jumped_at, '') end)
			from fence.lineage() l left join fence.database_identity i on true`,
		Advice: "Compare it with the database that was lost, as far as you know it.",
	},
}
