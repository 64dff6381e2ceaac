// Package journal checks histories: what the clients of a load saw while gateways and databases broke, against what the
// database has in the end. Tests that break something use it.
//
// Journal keeps what was sent, when, and what was answered. When the load has ended and every fault is healed,
// Journal.Check compares that with the database. checkHistory is a pure function of the two. Most of what it looks at
// are properties P1 to P5 and P9 to P12 of the product's contract.
//
// A client writes each record under a key of its own, so that none can hide another. A resource's versions then are 1,
// 2, 3, … with one record each, and a write that was lost or applied twice leaves a hole. A client that got no answer
// sends the same numbered write, by another gateway, until its outcome is known. A client whose answer was that nothing
// was changed sometimes leaves it at that, and the record must not be there.
//
// A lease on a subtree counts for every name below. A row of a protected table is one write, as a record is.
//
// A failover without synchronous replication, or a restored backup, loses by design what the new database never had.
// Journal.Lost names the time in which that was answered. Even then tokens must rise, and nothing that the new database
// has acknowledged may be missing.
package journal
