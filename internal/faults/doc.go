// Package faults holds tests alone: they run the real program before a real PostgreSQL, and kill, freeze, restart and
// fail over the one and the other while clients work.
//
//	gateways killed under load          kill -9, again and again; clients use another gateway
//	a gateway frozen in mid-write       SIGSTOP past the lease, a new holder, SIGCONT: the zombie is a gateway
//	PostgreSQL frozen under load        with statements in its hands that gateways give up
//	PostgreSQL killed under load        all its processes at once; gateways stay up, say so, and recover by themselves
//	fencegate with its own PostgreSQL   killed; nothing is left behind, and the next start recovers
//	failover with lost commits          asynchronous standbys, promoted siblings, dumps restored elsewhere and in place
//	all failovers, also by Patroni      measured, in a table: TestFailovers, `make failovers`
//	shutdown and start                  under load, with requests under way, many at once, on unsuitable databases
//
// # How histories are checked
//
// Clients keep a journal of what was sent, when, and what was answered. When the load has ended, the journal is held
// against what the database has: checkHistory is a pure function of the two, and has a test of its own in which every
// sort of bad history is found out. Most of what it looks at are properties P1 to P5, P9, P10 and P12 of the product's
// contract.
//
// A client writes each record under a key of its own, so that none can hide another; a resource's versions then are 1,
// 2, 3, … with one record each, and a write that was lost or applied twice leaves a hole. A client that got no answer
// sends the same numbered write, by another gateway, until its outcome is known; one whose answer was that nothing was
// changed sometimes leaves it at that, and the record must not be there.
//
// Each load lasts as long as -faults.duration or FENCEGATE_FAULTS_DURATION says (default 2 s), and until as many faults
// as its test demands have been survived.
package faults
