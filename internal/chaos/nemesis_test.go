//go:build unix

package chaos

import "slices"

// fault is something that the nemesis can do to the world.
type fault struct {
	name string
	// apply applies it, and returns what heals it; nil: it is over.
	apply func(*world, step) (heal func())
	// loses says that it loses commits where replication is asynchronous, and that its apply tells the journal.
	loses bool
	// alone says that nothing may be beside it, such as where its apply waits for all gateways.
	alone bool
}

// forgotten is found out only by clients that remember tokens.
const forgotten = "tokens-forgotten"

// The families of faults. Their order is part of what a seed means.
var (
	networks = []fault{
		{name: "client-cut", apply: toxic(toClients, `"type":"reset_peer","attributes":{"timeout":0}`)},
		{name: "client-slow", apply: toxic(toClients, `"type":"latency","attributes":{"latency":60,"jitter":50}`)},
		{name: "client-late", apply: toxic(toClients, `"type":"latency","attributes":{"latency":700,"jitter":300}`)},
		{name: "client-silent", apply: toxic(toClients, `"type":"timeout","attributes":{"timeout":0}`)},
		{name: "client-short", apply: toxic(toClients, `"type":"limit_data","attributes":{"bytes":700}`)},
		{name: "database-cut", apply: toxic(toDatabase, `"type":"reset_peer","attributes":{"timeout":0}`)},
		{name: "database-slow", apply: toxic(toDatabase, `"type":"latency","attributes":{"latency":20,"jitter":15}`)},
		{name: "database-silent", apply: toxic(toDatabase, `"type":"timeout","attributes":{"timeout":0}`)},
		{name: "database-short", apply: toxic(toDatabase, `"type":"limit_data","attributes":{"bytes":9000}`)},
	}
	processes = []fault{
		{name: "gateway-killed", apply: gatewayKilled},
		{name: "gateway-frozen", apply: gatewayFrozen},
		{name: "gateway-ended", apply: gatewayEnded},
		{name: "gateway-clock-moved", apply: clockMoved, alone: true},
		{name: "primary-killed", apply: primaryKilled},
		{name: "primary-restarted", apply: primaryRestarted},
		{name: "primary-frozen", apply: primaryFrozen},
		{name: "standby-killed", apply: standbyKilled},
		{name: "standby-frozen", apply: standbyFrozen},
	}
	backends = []fault{
		{name: "statements-canceled", apply: signalBackends("pg_cancel_backend")},
		{name: "sessions-terminated", apply: signalBackends("pg_terminate_backend")},
		{name: "connections-exhausted", apply: connectionsExhausted},
		{name: "settings-reloaded", apply: settingsReloaded},
	}
	failover = []fault{
		{name: "standby-promoted", apply: standbyPromoted},
		{name: "standby-promoted-behind", apply: promotedBehind("")},
		{name: "standby-promoted-after-cancel", apply: promotedBehind("pg_cancel_backend")},
		{name: "standby-promoted-after-terminate", apply: promotedBehind("pg_terminate_backend")},
		{name: "standby-promoted-after-reload", apply: promotedUnsynchronized},
		{name: "frozen-primary-replaced", apply: frozenPrimaryReplaced},
	}
	losing = []fault{
		{name: "commits-lost", apply: commitsLost, loses: true, alone: true},
		{name: "old-primary-returned", apply: oldPrimaryReturned, loses: true, alone: true},
		{name: "backup-restored", apply: backupRestored, loses: true, alone: true},
		{name: forgotten, apply: tokensForgotten, loses: true, alone: true},
	}

	// local faults lose nothing, whether or not commits wait for a standby.
	local    = slices.Concat(networks, processes, backends)
	lossless = slices.Concat(local, failover)
)

func faultNamed(name string) fault {
	all := slices.Concat(lossless, losing)
	return all[slices.IndexFunc(all, func(f fault) bool { return f.name == name })]
}
