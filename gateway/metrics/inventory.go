package gateway

import (
	"time"

	"github.com/fencegate/fencegate/store"
)

// upFor is how long an answer of the database shows that it is there: the sampler asks more often.
const upFor = 15 * time.Second

var inventorySubject = &subject{
	title: "The database as a whole",
	about: "Counted in the database by one gateway at a time (the inventory), and shown by each alike: take the `max`. What was never known yet is absent.",
}

var (
	locksFamily = inventorySubject.declare(family{
		kind: kindGauge, name: "fencegate_locks",
		help: "Locks that were ever granted or are waited for, as of the inventory; above 10,000 an estimate.",
		look: "It only grows: a lock's fence is never forgotten. Names that are made up anew for each task make it grow for ever.",
	})
	leasesFamily = inventorySubject.declare(family{
		kind: kindGauge, name: "fencegate_leases",
		help:   "Leases by state, as of the inventory: held, those that run; expiring, those of them with less than a quarter of their TTL left; expired, those that have run out, and whose lock nobody was granted since.",
		look:   "Many `expiring` are holders that don't renew in time; `expired` ones are holders that died, or are late.",
		labels: []label{{name: "state", values: []string{"held", "expiring", "expired"}}},
	})
	waitersFamily = inventorySubject.declare(family{
		kind: kindGauge, name: "fencegate_waiters",
		help: "Acquires that wait in all lines, as of the inventory.",
		look: "A line that grows: a lock that is held for longer than its waiters come.",
	})
	oldestWaitFamily = inventorySubject.declare(family{
		kind: kindGauge, name: "fencegate_oldest_wait_seconds",
		help: "How long the first of them has waited, as of the inventory; 0: nobody waits.",
		look: "A line that does not move: who holds the lock, and does it still work?",
	})
	inventorySessionsFamily = inventorySubject.declare(family{
		kind: kindGauge, name: "fencegate_sessions",
		help: "Sessions that live, as of the inventory.",
		look: "About as many as there are processes that use them.",
	})
	newestTokenFamily = inventorySubject.declare(family{
		kind: kindGauge, name: "fencegate_newest_token",
		help: "The greatest fencing token that was minted or granted, as of the inventory.",
		look: "It grows with the grants, and jumps when the database was found to be another one. There are 2^53.",
	})
	jumpsFamily = inventorySubject.declare(family{
		kind: kindGauge, name: "fencegate_token_jumps",
		help: "How often tokens jumped past those of a database that was lost: a standby that was promoted, a backup that was restored.",
		look: "Each is a failover or a restore; one that nobody knows of is worth a look.",
	})
	inventoryAgeFamily = inventorySubject.declare(family{
		kind: kindGauge, name: "fencegate_inventory_age_seconds",
		help: "How old the inventory is, of which the numbers above are.",
		look: "Some two seconds; more where there is so much to count that it is done more rarely, or where the database is away.",
	})
	databaseUpFamily = inventorySubject.declare(family{
		kind: kindGauge, name: "fencegate_database_up",
		help: "1 while the database answers and takes writes.",
		look: "0: nothing is granted or written; `/v1/overview` and `/readyz` say why.",
	})
	synchronousExpectedFamily = inventorySubject.declare(family{
		kind: kindGauge, name: "fencegate_database_synchronous_expected",
		help: "1 if commits wait for standbys (synchronous_standby_names, and synchronous_commit).",
		look: "0: a grant or a write may be lost with the database's machine.",
	})
	synchronousStandbysFamily = inventorySubject.declare(family{
		kind: kindGauge, name: "fencegate_database_synchronous_standbys",
		help: "Standbys that commits can wait for; absent where the gateway's role may not see them (pg_read_all_stats).",
		look: "0 while they are expected: commits hang.",
	})
)

// watchOverview shows what was last known of the database. What was never known is absent.
func (m *Metrics) watchOverview(last func() knownOverview) {
	m.registry.onScrape(func(to *readings) {
		known := last()
		to.flag(databaseUpFamily, !known.failed && !known.Database.ReadOnly && known.age() < upFor)
		if known.heard.IsZero() {
			return
		}
		to.value(jumpsFamily, float64(known.Database.Jumps))
		to.flag(synchronousExpectedFamily, known.Database.SynchronousExpected)
		if standbys := known.Database.SynchronousStandbys; standbys != nil {
			to.value(synchronousStandbysFamily, float64(*standbys))
		}
		if !known.Inventory.At.IsZero() {
			to.inventory(known.Inventory)
			to.value(inventoryAgeFamily, max(known.at().Sub(known.Inventory.At).Seconds(), 0))
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
