package metrics

import (
	"time"

	"github.com/fencegate/fencegate/store"
)

var inventorySubject = &subject{
	title: "The database as a whole",
	about: "One gateway at a time counts these in the database (the inventory), and every gateway shows them: take " +
		"the `max`. A value that is not known yet is absent.",
}

var (
	locksFamily = inventorySubject.declare(Family{
		Kind: Gauge, Name: "fencegate_locks",
		Help: "Locks that were ever granted or have waiters, as of the inventory; above 10,000 an estimate.",
		Look: "It only grows, since fences are never deleted. A new name for each task makes it grow for ever.",
	})
	leasesFamily = inventorySubject.declare(Family{
		Kind: Gauge, Name: "fencegate_leases",
		Help: "Leases by state, as of the inventory: held, the live ones; expiring, those of them with less than a " +
			"quarter of their TTL left; expired, those that ran out and whose lock was not granted since.",
		Look:   "Many `expiring` are holders that don't renew in time; `expired` are holders that died, or are late.",
		Labels: []Label{{Name: "state", Values: []string{"held", "expiring", "expired"}}},
	})
	waitersFamily = inventorySubject.declare(Family{
		Kind: Gauge, Name: "fencegate_waiters",
		Help: "Acquires that wait in all queues, as of the inventory.",
		Look: "If it grows, locks are held for longer than it takes new waiters to arrive.",
	})
	oldestWaitFamily = inventorySubject.declare(Family{
		Kind: Gauge, Name: "fencegate_oldest_wait_seconds",
		Help: "How long the oldest of them has waited, as of the inventory; 0 without waiters.",
		Look: "If it grows, a queue does not move: which owner holds the lock, and does it still work?",
	})
	inventorySessionsFamily = inventorySubject.declare(Family{
		Kind: Gauge, Name: "fencegate_sessions",
		Help: "Live sessions, as of the inventory.",
		Look: "About as many as there are processes that use them.",
	})
	newestTokenFamily = inventorySubject.declare(Family{
		Kind: Gauge, Name: "fencegate_newest_token",
		Help: "The greatest fencing token that was minted or granted, as of the inventory.",
		Look: "It grows with the grants, and jumps after a failover or a restore. There are 2^53.",
	})
	jumpsFamily = inventorySubject.declare(Family{
		Kind: Gauge, Name: "fencegate_token_jumps",
		Help: "Times that tokens jumped past those of a lost database: a standby was promoted, or a backup restored.",
		Look: "Each is a failover or a restore. Investigate one that nobody knows of.",
	})
	inventoryAgeFamily = inventorySubject.declare(Family{
		Kind: Gauge, Name: "fencegate_inventory_age_seconds",
		Help: "Age of the inventory that the numbers above come from.",
		Look: "Some two seconds; more where counting takes long and is done less often, or while the database is " +
			"unreachable.",
	})
	databaseUpFamily = inventorySubject.declare(Family{
		Kind: Gauge, Name: "fencegate_database_up",
		Help: "1 while the database answers and takes writes.",
		Look: "0: nothing is granted or written; `/v1/overview` and `/readyz` show why.",
	})
	synchronousExpectedFamily = inventorySubject.declare(Family{
		Kind: Gauge, Name: "fencegate_database_synchronous_expected",
		Help: "1 if commits wait for standbys (synchronous_standby_names, and synchronous_commit).",
		Look: "0: a grant or a write may be lost with the database's machine.",
	})
	synchronousStandbysFamily = inventorySubject.declare(Family{
		Kind: Gauge, Name: "fencegate_database_synchronous_standbys",
		Help: "Standbys that commits can wait for; absent where the gateway's role may not see them " +
			"(pg_read_all_stats).",
		Look: "0 while they are expected: commits hang.",
	})
)

// Database is the last known state of the database.
type Database struct {
	// Up says that it answered lately and takes writes.
	Up bool
	// Overview is nil until the database answers for the first time.
	Overview *store.Overview
	// Now is the time by the database's clock.
	Now time.Time
}

// WatchDatabase shows the last known state of the database at each scrape.
func (m *Metrics) WatchDatabase(last func() Database) {
	m.registry.onScrape(func(to *readings) {
		known := last()
		to.flag(databaseUpFamily, known.Up)
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
	}, inventorySubject.families...)
}

func (r *readings) inventory(inventory store.Inventory) {
	r.value(locksFamily, float64(inventory.Locks))
	r.value(leasesFamily, float64(inventory.Held), "held")
	r.value(leasesFamily, float64(inventory.Expiring), "expiring")
	r.value(leasesFamily, float64(inventory.Expired), "expired")
	r.value(waitersFamily, float64(inventory.Waiting))
	r.value(oldestWaitFamily, inventory.OldestWait.Seconds())
	r.value(inventorySessionsFamily, float64(inventory.Sessions))
	r.value(newestTokenFamily, float64(inventory.NewestToken))
}
