package metrics

import (
	"slices"
	"time"

	"github.com/fencegate/fencegate/store"
)

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
		if !inventory.At.IsZero() {
			to.inventory(inventory)
			to.value(inventoryAgeFamily, max(known.Now.Sub(inventory.At).Seconds(), 0))
		}
		to.tables(known.Overview)
	}, slices.Concat(inventorySubject.families, tableSubject.families)...)
}

func (r *readings) inventory(inventory store.Inventory) {
	r.value(locksFamily, float64(inventory.Locks))
	r.value(leasesFamily, float64(inventory.Held), "held")
	r.value(leasesFamily, float64(inventory.Expiring), "expiring")
	r.value(leasesFamily, float64(inventory.Expired), "expired")
	r.value(waitersFamily, float64(inventory.Waiting))
	r.value(oldestWaitFamily, inventory.OldestWait.Seconds())
	r.value(stuckFamily, inventory.Stuck.Seconds())
	r.value(inventorySessionsFamily, float64(inventory.Sessions))
	r.value(newestTokenFamily, float64(inventory.NewestToken))
}
