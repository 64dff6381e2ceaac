// Package faults holds tests alone: they run the real program before a real PostgreSQL, and kill, freeze, restart and
// fail over the one and the other while clients work. internal/test/chaos lets many faults come in any order.
//
//	gateways killed under a crowd       with many writes of many clients in one commit
//	a gateway frozen in mid-write       SIGSTOP past the lease, a new holder, SIGCONT: the zombie is a gateway
//	fencegate with its own PostgreSQL   killed; nothing is left behind, and the next start recovers
//	failover with lost commits          asynchronous standbys, dumps restored elsewhere and in place
//	backups restored under load         by the commands of docs/backup.md: TestSlow_Drill, `make drill`
//	all failovers, also by Patroni      measured, in a table: TestFailovers, `make failovers`
//	shutdown and start                  with requests under way, on unsuitable databases
//
// Clients keep a journal, which is compared with the database when the load has ended (internal/test/journal).
//
// Each load lasts as long as -faults.duration says, and until as many faults as its test demands have been survived.
package faults
