// Package engine puts together a store and the machines that work beside it. A gateway serves the two.
//
//	gateway ─▶ Engine ─┬─ groupcommit     writes of many clients in one commit
//	                   ├─ waitqueue       acquires that wait for their turn
//	                   ├─ watch           states of locks
//	                   ├─ keyring         API keys in memory
//	                   ├─ readiness       the probe for /readyz
//	                   ├─ Refusals        writes that are certainly rejected, without asking the database
//	                   ├─ listener        the connection on which the database notifies
//	                   └─ postgres.Store  all that needs none of these
//
// An [Engine] decides nothing by itself. Every grant and every verdict is the database's, so any number of engines may
// work on one database. Its memory of rejected writes can only refuse what the database would refuse.
//
// # States of the listening connection
//
//	             connected                      lost, or another database
//	connecting ─────────────▶ listening ──────────────────────────────────▶ connecting
//	  ▲   │ failed, pause        │
//	  └───┘                      │ at the start: Refusals become valid, all waiters send their acquires again, all
//	                             │ watched locks are read
//	                             │ at the end: Refusals become invalid
//
// # Invariants
//
//   - P4: Commit and Submit return no verdict before its commit.
//   - Refusals are used only while the engine listens: otherwise a change of policies could pass unnoticed.
//   - After Run has returned, no write is in flight.
//
// # What happens on each failure
//
//   - The listening connection is lost: waiters and watches are served by polling. Refusals are empty until it is back.
//   - The database was replaced beneath the connection (a dump was restored in place): that counts as a lost
//     connection.
//   - The database is unreachable: writes fail at once with ErrUnavailable; waiters keep their tickets and try again.
//   - The engine is killed: statements whose commit reached the database are in force, all others left no trace.
package engine
