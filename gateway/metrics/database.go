package metrics

import (
	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/readiness"
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
		"Any: see [FencegateDatabaseWentBack](operations.md#fencegatedatabasewentback). Only `client`: it may be a client "+
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

func (r *readings) database(of Watched) {
	notReady := of.NotReady()
	r.flag(databaseUpFamily, notReady == nil)
	for _, reason := range readiness.Reasons {
		r.flag(notReadyFamily, notReady != nil && notReady.Reason == reason, string(reason))
	}
	r.flag(listeningFamily, of.Listening())
	r.value(reconnectsFamily, float64(of.Reconnects()))
	pool := of.PoolStats()
	r.value(connectionsFamily, float64(pool.Max), "max")
	r.value(connectionsFamily, float64(pool.Busy), "busy")
	r.value(connectionsFamily, float64(pool.Idle), "idle")
	r.value(connectionWaitsFamily, float64(pool.Waited))
	r.reasons(failuresFamily, of.Failures())
	for sign, times := range of.WentBack() {
		r.value(wentBackFamily, float64(times), string(sign))
	}
	r.reasons(retriesFamily, of.Retries())
}
