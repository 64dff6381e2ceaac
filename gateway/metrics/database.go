package gateway

import (
	"time"

	"github.com/fencegate/fencegate/store"
)

var databaseSubject = &subject{title: "The database, as this gateway sees it"}

var (
	listeningFamily = databaseSubject.declare(family{
		kind: kindGauge, name: "fencegate_database_listening",
		help: "1 while the connection for notifications stands; otherwise waiters are served by polling.",
		look: "0 for longer than a restart of the database: waiters and watchers are told up to two seconds late.",
	})
	reconnectsFamily = databaseSubject.declare(family{
		kind: kindCounter, name: "fencegate_listener_reconnects_total",
		help: "How often the connection for notifications was made anew, after it was lost.",
		look: "Each is a restart or a failover of the database, or a network between that cuts connections.",
	})
	connectionsFamily = databaseSubject.declare(family{
		kind: kindGauge, name: "fencegate_database_connections",
		help:   "Connections to the database by state; max is the limit.",
		look:   "`busy` at `max` for long: statements wait (see the next), or are slow.",
		labels: []label{{name: "state", values: []string{"max", "busy", "idle"}}},
	})
	connectionWaitsFamily = databaseSubject.declare(family{
		kind: kindCounter, name: "fencegate_database_connection_waits_total",
		help: "Statements that had to wait for a connection.",
		look: "Many: more connections (`--database-connections-max`), or a faster database.",
	})
	failuresFamily = databaseSubject.declare(family{
		kind: kindCounter, name: "fencegate_database_errors_total",
		help:   "Statements that failed, by reason, those that were tried again by the gateway among them.",
		look:   "`busy` is a fence that somebody else kept locked; `connection` a database that is away, or refuses; `timeout` one that is slow (`--statement-timeout`); `read_only` a standby; `not_migrated` a schema of another version; `other` a full disk, or a defect: the log says which.",
		labels: []label{{name: "reason", values: reasonTexts(store.FailureReasons)}},
	})
	retriesFamily = databaseSubject.declare(family{
		kind: kindCounter, name: "fencegate_retries_total",
		help:   "What this gateway tried again by itself, by reason: busy, writes that went back to the queue, since somebody else had their fence locked; deadlock and serialization, statements that the database had rolled back; connection, what was asked again since the database was away.",
		look:   "Clients don't notice, but for the time. Many `busy`: transactions at the SQL source, or other gateways, write to the same resources and keep their fences locked. A deadlock or a failed serialization that is not tried again is told to the client as `unavailable`, and only counted in `fencegate_database_errors_total`.",
		labels: []label{{name: "reason", values: reasonTexts(store.RetryReasons)}},
	})
)

// databaseReadings shows how the database is used.
func databaseReadings(of Watched) (func(*readings), []*family) {
	read := func(to *readings) {
		to.flag(listeningFamily, of.Listening())
		to.value(reconnectsFamily, float64(of.Reconnects()))
		pool := of.PoolStats()
		to.value(connectionsFamily, float64(pool.Max), "max")
		to.value(connectionsFamily, float64(pool.Busy), "busy")
		to.value(connectionsFamily, float64(pool.Idle), "idle")
		to.value(connectionWaitsFamily, float64(pool.Waited))
		to.reasons(failuresFamily, of.Failures())
		to.reasons(retriesFamily, of.Retries())
	}
	return read, []*family{listeningFamily, reconnectsFamily, connectionsFamily, connectionWaitsFamily, failuresFamily, retriesFamily}
}

func (r *readings) reasons(f *family, counts map[store.Reason]uint64) {
	for reason, count := range counts {
		r.value(f, float64(count), string(reason))
	}
}

// durations is of a family whose buckets are store.DurationBounds.
func (r *readings) durations(f *family, took store.Durations, labels ...string) {
	upTo := map[float64]uint64{}
	for i, bound := range f.buckets {
		upTo[bound] = took.UpTo[i]
	}
	r.histogram(f, took.Count, took.Sum.Seconds(), upTo, labels...)
}

func secondsOf(bounds []time.Duration) []float64 {
	seconds := make([]float64, len(bounds))
	for i, bound := range bounds {
		seconds[i] = bound.Seconds()
	}
	return seconds
}

func reasonTexts(reasons []store.Reason) []string {
	texts := make([]string, len(reasons))
	for i, reason := range reasons {
		texts[i] = string(reason)
	}
	return texts
}
