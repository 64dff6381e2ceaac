package metrics

import (
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/readiness"
	"github.com/fencegate/fencegate/store/redislease"
)

var databaseSubject = &subject{title: "The database, as this gateway sees it"}

var (
	databaseUpFamily = databaseSubject.gauge("fencegate_database_up",
		"1 while the database takes commits, as `/readyz` finds out each second.",
		"0: nothing is granted or written; the next says why.")
	notReadyFamily = databaseSubject.gauge("fencegate_not_ready",
		"1 for the reason why the database takes no commits, 0 for the others.",
		"`/readyz` shows it with a text; [readiness](operations.md#readiness) says what each reason means and what to do.",
		Label{Name: "reason", Values: texts(readiness.Reasons...)})
	listeningFamily = databaseSubject.gauge("fencegate_database_listening",
		"1 while the connection for notifications is open; otherwise waiters are served by polling.",
		"0 for longer than a restart of the database: waiters and watchers get news up to two seconds late.")
	reconnectsFamily = databaseSubject.counter("fencegate_listener_reconnects_total",
		"Times the connection for notifications was lost and reopened.",
		"Each is a restart or a failover of the database, or a network between that cuts connections.")
	connectionsFamily = databaseSubject.gauge("fencegate_database_connections",
		"Connections to the database by state; max is the limit.",
		"`busy` at `max` for long: statements wait (see the next), or are slow.",
		Label{Name: "state", Values: []string{"max", "busy", "idle"}})
	connectionWaitsFamily = databaseSubject.counter("fencegate_database_connection_waits_total",
		"Statements that had to wait for a connection.",
		"Many: more connections (`--database-connections-max`), or a faster database.")
	failuresFamily = databaseSubject.counter("fencegate_database_errors_total",
		"Failed statements by reason, including those that the gateway retried.",
		"`busy`: another session kept a fence locked; `connection`: the database is unreachable, or refuses; "+
			"`connections_exhausted`: it takes no more connections; `disk_full`: free some space; "+
			"`timeout`: it is slow (`--statement-timeout`); `not_replicated`: a commit was made, and its wait for a "+
			"synchronous standby was ended; `read_only`: it is a standby; `not_migrated`: its schema has another "+
			"version; `went_back`: it is in an older state than one that was seen; `other`: a lack of memory, or a "+
			"defect, which the log names.",
		Label{Name: "reason", Values: texts(store.FailureReasons...)})
	wentBackFamily = databaseSubject.counter("fencegate_database_went_back_total",
		"Times the database was found in an older state than one seen before, and was not used, by sign: timeline, an old "+
			"primary is back; system, a cluster that was left; tokens, its token sequence is lower than it was; superseded, a "+
			"gateway has marked it; statement, a statement ended on it after another database had taken over, and is answered "+
			"`outcome: unknown`; client, a granted token was not greater than the client's `newest_token`.",
		"Any: see [FencegateDatabaseWentBack](runbooks/FencegateDatabaseWentBack.md). Only `client`: it may be a client "+
			"with a wrong `newest_token`.",
		Label{Name: "sign", Values: texts(store.Signs...)})
	retriesFamily = databaseSubject.counter("fencegate_retries_total",
		"Retries by this gateway, by reason: busy, writes that went back to the queue because another session "+
			"had locked their fence; deadlock and serialization, statements that the database rolled back; "+
			"connection, requests resent after the database was unreachable.",
		"Clients notice only the delay. Many `busy`: SQL transactions or other gateways write to the same "+
			"resources and keep their fences locked. A deadlock or a failed serialization that is not retried is "+
			"answered as `unavailable`, and counted only in `fencegate_database_errors_total`.",
		Label{Name: "reason", Values: texts(store.RetryReasons...)})
)

func (r *readings) database(service Watched) {
	notReady := service.NotReady()
	r.flag(databaseUpFamily, notReady == nil)
	for _, reason := range readiness.Reasons {
		r.flag(notReadyFamily, notReady != nil && notReady.Reason == reason, string(reason))
	}
	r.flag(listeningFamily, service.Listening())
	r.value(reconnectsFamily, float64(service.Reconnects()))
	pool := service.PoolStats()
	r.value(connectionsFamily, float64(pool.Max), "max")
	r.value(connectionsFamily, float64(pool.Busy), "busy")
	r.value(connectionsFamily, float64(pool.Idle), "idle")
	r.value(connectionWaitsFamily, float64(pool.Waited))
	r.reasons(failuresFamily, service.Failures())
	for sign, times := range service.WentBack() {
		r.value(wentBackFamily, float64(times), string(sign))
	}
	r.reasons(retriesFamily, service.Retries())
}

var inventorySubject = &subject{
	title: "The database as a whole",
	about: "One gateway at a time counts these in the database (the inventory), and every gateway shows them: take " +
		"the `max`. A value that is not known yet is absent.",
}

var (
	locksFamily = inventorySubject.gauge("fencegate_locks",
		"Locks that were ever granted or have waiters, as of the inventory; above 10,000 an estimate.",
		"It only grows: a name that was granted keeps its fence. A new name for each task makes it grow for ever.")
	leasesFamily = inventorySubject.gauge("fencegate_leases",
		"Leases by state, as of the inventory: held, the live ones; expiring, those of them with less than a "+
			"quarter of their TTL left; expired, those that ran out and whose lock was not granted since.",
		"Many `expiring` are holders that don't renew in time; `expired` are holders that died, or are late.",
		Label{Name: "state", Values: []string{"held", "expiring", "expired"}})
	overdueFamily = inventorySubject.gauge("fencegate_lease_overdue_seconds",
		"How long ago the lease expired that has waited longest for a sweep to end it, also one of a session, as of the "+
			"inventory; 0 if there is none.",
		"A few seconds. If it grows, sweeps do not end it: something has its rows locked.")
	waitersFamily = inventorySubject.gauge("fencegate_waiters",
		"Acquires that wait in all queues, as of the inventory.",
		"If it grows, locks are held for longer than it takes new waiters to arrive.")
	oldestWaitFamily = inventorySubject.gauge("fencegate_oldest_wait_seconds",
		"How long the oldest of them has waited, as of the inventory; 0 without waiters.",
		"If it grows, a queue does not move: which owner holds the lock, and does it still work?")
	stuckFamily = inventorySubject.gauge("fencegate_queue_stuck_seconds",
		"How long the first waiter of a queue could have been granted its lock and was not, of all queues the longest, as "+
			"of the inventory; 0 if there is none.",
		"A grant takes milliseconds. If it grows, gateways do not grant. Waits for a holder do not count.")
	inventorySessionsFamily = inventorySubject.gauge("fencegate_sessions",
		"Live sessions, as of the inventory.",
		"About as many as there are processes that use them.")
	newestTokenFamily = inventorySubject.gauge("fencegate_newest_token",
		"The greatest fencing token that was minted or granted, as of the inventory.",
		"It grows with the grants, and jumps after a failover, a restore or a restart of the database. There are 2^53.")
	jumpsFamily = inventorySubject.gauge("fencegate_token_jumps",
		"Times that tokens jumped past those of a lost database: a standby was promoted, a backup restored, or the server "+
			"started again.",
		"Each is a failover, a restore or a restart. Investigate one that nobody knows of.")
	inventoryAgeFamily = inventorySubject.gauge("fencegate_inventory_age_seconds",
		"Age of the inventory that the numbers above come from.",
		"Some two seconds; more where counting takes long and is done less often, or while the database is "+
			"unreachable.")
	synchronousExpectedFamily = inventorySubject.gauge("fencegate_database_synchronous_expected",
		"1 if commits wait for standbys (synchronous_standby_names, and synchronous_commit).",
		"0: a grant or a write may be lost with the database's machine.")
	synchronousStandbysFamily = inventorySubject.gauge("fencegate_database_synchronous_standbys",
		"Standbys that commits can wait for; absent where the gateway's role may not see them "+
			"(pg_read_all_stats).",
		"0 while they are expected: commits hang.")
	oldestSnapshotFamily = inventorySubject.gauge("fencegate_database_oldest_snapshot_seconds",
		"How long PostgreSQL has been kept from removing old versions of rows: the age of the oldest transaction of this "+
			"database with a snapshot or an id, also if it is prepared, or the time for which this gateway has seen a "+
			"replication slot or a standby (hot_standby_feedback) ask for the same old version; 0 without any. Without "+
			"pg_read_all_stats a gateway sees its own role's transactions, prepared ones and slots.",
		"Minutes: rows that change often get slower with each change. "+
			"[FencegateOldSnapshot](runbooks/FencegateOldSnapshot.md) names the one to end.")
)

// Database is the last known state of the database.
type Database struct {
	// Overview is nil until the database answers for the first time.
	Overview *store.Overview
	// Now is the time by the database's clock.
	Now time.Time
}

// WatchDatabase shows the last known state of the database at each scrape.
func (m *Metrics) WatchDatabase(last func() Database) {
	m.registry.onScrape(func(to *readings) {
		known := last()
		if known.Overview == nil {
			return
		}
		database, inventory := known.Overview.Database, known.Overview.Inventory
		to.value(jumpsFamily, float64(database.Jumps))
		to.flag(synchronousExpectedFamily, database.SynchronousExpected)
		if standbys := database.SynchronousStandbys; standbys != nil {
			to.value(synchronousStandbysFamily, float64(*standbys))
		}
		to.value(oldestSnapshotFamily, database.OldestSnapshot.Seconds())
		if !inventory.At.IsZero() {
			to.inventory(inventory)
			to.value(inventoryAgeFamily, max(known.Now.Sub(inventory.At).Seconds(), 0))
		}
		to.tables(known.Overview)
		to.nodes(known.Overview.Nodes)
	}, slices.Concat(inventorySubject.families, tableSubject.families, nodeSubject.families)...)
}

func (r *readings) inventory(inventory store.Inventory) {
	r.value(locksFamily, float64(inventory.Locks))
	r.value(leasesFamily, float64(inventory.Held), "held")
	r.value(leasesFamily, float64(inventory.Expiring), "expiring")
	r.value(leasesFamily, float64(inventory.Expired), "expired")
	r.value(overdueFamily, inventory.Overdue.Seconds())
	r.value(waitersFamily, float64(inventory.Waiting))
	r.value(oldestWaitFamily, inventory.OldestWait.Seconds())
	r.value(stuckFamily, inventory.Stuck.Seconds())
	r.value(inventorySessionsFamily, float64(inventory.Sessions))
	r.value(newestTokenFamily, float64(inventory.NewestToken))
}

var tableSubject = &subject{
	title: "Protected tables",
	about: "One gateway at a time counts these in the database, and every gateway shows them: take the `max`.",
}

var (
	sqlRejectionsFamily = tableSubject.counter("fencegate_sql_rejections_total",
		"Rejections by SQL, also those whose transaction was rolled back; in the mode `observe` the write passed.",
		"`token_required`: a program writes to a protected table and does not call fence.guard. As of the last sweep. "+
			"After a crash of the database's server, up to 32 of each may be missing.",
		Label{Name: "code", Values: texts(store.SQLVerdicts...)}, Label{Name: "kind", Values: kindNames()},
		Label{Name: "mode", Values: []string{"enforce", "observe"}})
	sqlGuardsFamily = tableSubject.counter("fencegate_sql_guards_total",
		"Guarded writes by SQL, as PostgreSQL's statistics have them; absent where `track_functions` is `none`.",
		"Some seconds late. Also those that were rolled back after the guard.")
	unlistedFamily = tableSubject.gauge("fencegate_sql_rejections_unlisted",
		"How many of these the list of rejections misses, as of the last sweep.",
		"[Why](sql/guard.md#how-rejections-are-counted). The writes were rejected all the same.")
	protectedTablesFamily = tableSubject.gauge("fencegate_protected_tables",
		"Protected tables by mode, as of the inventory.",
		"`observe` only records what `enforce` rejects.",
		Label{Name: "mode", Values: []string{"enforce", "observe"}})
	tableProblemsFamily = tableSubject.gauge("fencegate_protected_tables_with_problems",
		"Protected tables whose rows are not all checked, such as with a disabled trigger, as of the last look "+
			"at each, some 30 s ago.",
		"Not 0: late writes can destroy data there. `fencegate check` and `/v1/tables` name the tables and the problems.")
)

func (r *readings) tables(overview *store.Overview) {
	bySQL := overview.Database.BySQL
	for class, rejections := range bySQL.Rejected {
		mode := "enforce"
		if class.Observed {
			mode = "observe"
		}
		r.value(sqlRejectionsFamily, float64(rejections), string(class.Verdict), string(class.Kind), mode)
	}
	r.value(unlistedFamily, float64(bySQL.Unlisted))
	if bySQL.Guards != nil {
		r.value(sqlGuardsFamily, float64(*bySQL.Guards))
	}
	if inventory := overview.Inventory; !inventory.At.IsZero() {
		r.value(protectedTablesFamily, float64(inventory.TablesEnforce), "enforce")
		r.value(protectedTablesFamily, float64(inventory.TablesObserve), "observe")
		r.value(tableProblemsFamily, float64(inventory.TablesWithProblems))
	}
}

var nodeSubject = &subject{
	title: "Nodes of a cluster",
	about: "With `--cluster`. Each gateway shows what the nodes answered it last: take the `max`.",
}

var (
	nodeLabel    = Label{Name: "node", Open: "its address"}
	nodeUpFamily = nodeSubject.gauge("fencegate_node_up", "1 if the node answered when it was last asked, seconds ago.",
		"0: no name at this node is granted or written. Those at others are.", nodeLabel)
	nodeLocksFamily = nodeSubject.gauge("fencegate_node_locks", "Locks that are at the node, as `fencegate_locks`.",
		"One node with many times those of the others: its names have few first segments.", nodeLabel)
	nodeLeasesFamily  = nodeSubject.gauge("fencegate_node_leases", "Live leases at the node.", "", nodeLabel)
	nodeWaitersFamily = nodeSubject.gauge("fencegate_node_waiters", "Acquires that wait at the node.", "", nodeLabel)
)

func (r *readings) nodes(nodes []store.NodeState) {
	for _, on := range nodes {
		r.flag(nodeUpFamily, on.Failed == nil, on.Address)
		if on.Failed == nil {
			r.value(nodeLocksFamily, float64(on.Inventory.Locks), on.Address)
			r.value(nodeLeasesFamily, float64(on.Inventory.Held), on.Address)
			r.value(nodeWaitersFamily, float64(on.Inventory.Waiting), on.Address)
		}
	}
}

var redisSubject = &subject{
	title: "Redis servers that keep leases",
	about: "A gateway shows those that it was started with (`--redis-url`, `--redlock-urls`).",
}

var (
	redisLabels = []Label{
		{Name: "provider", Values: texts(store.ProviderRedis, store.ProviderRedlock)},
		{Name: "server", Open: "its address, or the name that its Sentinels have for it"},
	}
	redisUpFamily = redisSubject.gauge("fencegate_redis_up",
		"1 if the server answered its last call, which is a second old at most.",
		"0: see `fencegate_redis_errors_total`, and the log. redlock needs more than half of its servers.", redisLabels...)
	redisVotingFamily = redisSubject.gauge("fencegate_redis_voting",
		"0 while a server of redlock does not vote: it was started, or lost its data, less than `--redlock-ttl-max` ago, and "+
			"may have lost leases that still run.",
		"0 for less than that time after a restart. No locks are granted while fewer than half of the servers vote.",
		redisLabels...)
	redisCallsFamily  = redisSubject.counter("fencegate_redis_calls_total", "Calls of the server.", "", redisLabels...)
	redisErrorsFamily = redisSubject.counter("fencegate_redis_errors_total", "Calls that failed, by kind.",
		"`timeout`: it is slow, or away (`--redis-timeout`); `full`: `maxmemory`; `wrong_type`: the key of a lock has other "+
			"data; `permission` and `auth`: the rights of its user; `read_only`: a replica.",
		append(redisLabels[:len(redisLabels):len(redisLabels)], Label{Name: "kind", Values: texts(redislease.Kinds...)})...)
)

// WatchRedis shows the servers that keep leases.
func (m *Metrics) WatchRedis(all ...*redislease.Leases) {
	m.registry.onScrape(func(to *readings) {
		for _, of := range all {
			for _, server := range of.Stats() {
				to.redis(string(of.Provider()), server)
			}
		}
	}, redisSubject.families...)
}

func (r *readings) redis(provider string, s redislease.ServerStats) {
	r.flag(redisUpFamily, s.Up, provider, s.Address)
	r.flag(redisVotingFamily, !time.Now().Before(s.QuarantinedUntil), provider, s.Address)
	r.value(redisCallsFamily, float64(s.Calls), provider, s.Address)
	for _, kind := range redislease.Kinds {
		r.value(redisErrorsFamily, float64(s.Errors[kind]), provider, s.Address, string(kind))
	}
}

// The rows that a sweep ends or deletes, as metrics name them.
const (
	sweptLeases      = "lease_expired"
	sweptSessions    = "session_expired"
	forgotLeases     = "lease_forgotten"
	forgotRejections = "rejection_forgotten"
	forgotAudit      = "audit_forgotten"
)

var sweepSubject = &subject{title: "Sweeps"}

var (
	sweptFamily = sweepSubject.counter("fencegate_swept_total",
		"Rows that this gateway's sweeps tidied: expired leases and sessions that they ended or counted; old leases, "+
			"rejections and entries of the audit log that they deleted.",
		"`lease_expired` and `session_expired` are holders that did not release: they crashed, or were cut off. "+
			"One gateway counts each expired lease, also those of an expired session, and those whose lock was granted "+
			"again before the sweep.",
		Label{Name: "kind", Values: []string{sweptLeases, sweptSessions, forgotLeases, forgotRejections, forgotAudit}})
	sweepTimeFamily = sweepSubject.histogram("fencegate_sweep_duration_seconds",
		"Time that successful sweeps took.",
		"Nothing waits for a sweep, but tables grow without it. Seconds are a lot.",
		durationBuckets)
	lastSweepFamily = sweepSubject.gauge("fencegate_last_sweep_timestamp_seconds",
		"When this gateway's last successful sweep ended, in seconds since 1970 by its own clock; 0 before the "+
			"first.",
		"More than a minute ago: the database is unreachable, or too slow for sweeps. Expired leases are "+
			"grantable all the same.")
)

func newSwept(r registry) *prometheus.CounterVec {
	swept := r.counters(sweptFamily)
	for _, kind := range sweptFamily.Labels[0].Values {
		swept.WithLabelValues(kind)
	}
	return swept
}

// Swept counts the work of one sweep.
func (m *Metrics) Swept(swept store.Swept) {
	m.swept.WithLabelValues(sweptLeases).Add(float64(swept.Expired))
	m.swept.WithLabelValues(sweptSessions).Add(float64(swept.SessionsExpired))
	m.swept.WithLabelValues(forgotLeases).Add(float64(swept.LeasesForgotten))
	m.swept.WithLabelValues(forgotRejections).Add(float64(swept.RejectionsForgotten))
	m.swept.WithLabelValues(forgotAudit).Add(float64(swept.AuditForgotten))
}

// WatchSweeper shows how long sweeps take, and when the last one ended.
func (m *Metrics) WatchSweeper(stats func() store.SweepStats) {
	m.registry.onScrape(func(to *readings) {
		s := stats()
		to.durations(sweepTimeFamily, s.Took)
		to.value(lastSweepFamily, secondsSince1970(s.Last))
	}, sweepTimeFamily, lastSweepFamily)
}
