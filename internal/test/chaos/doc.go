// Package chaos holds tests alone: gateways before a primary with a synchronous standby, clients at work, and a nemesis
// that applies one fault after the other, drawn from a seed. internal/test/faults tests each fault alone and in depth; this
// package tests that they may come in any order.
//
//	schedule   a seed → epochs of faults; pure, so a seed replays its schedule
//	nemesis    one small function for each fault
//	world      the databases, gateways, and the network between them, of which nothing is healthy for long
//	paths      clients beside those of the load: by HTTP under nested subtree leases, shared ones and sessions, and by SQL
//	           on a protected table. They also send what must fail: invented tokens, foreign lease_ids, no token at all
//
// An epoch has a load of its own, on names of its own. When its faults are healed, the whole history is compared with the
// contract (spec.Check) and with the database (internal/test/journal). If that finds anything, the history is kept in a
// file for "fencegate-bench check-history". While replication is synchronous, nothing that was acknowledged may be lost. In some
// epochs a fault loses commits by design: a standby is promoted that replicated asynchronously, or a backup is
// restored. Then tokens must rise all the same, for every client and through the loss, and nothing may be lost
// afterwards.
//
// The checks find violations: TestSafeguards switches off one safeguard of the product after the other, by replacing a
// piece of its source, and expects a violation.
package chaos
