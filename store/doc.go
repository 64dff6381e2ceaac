// Package store is the domain of fencegate: leases, tokens, fences, writes, rejections, policies, sessions and
// keys, with their limits and errors. It knows no database and no HTTP.
//
// The packages below it make this work:
//
//   - store/postgres has one method for each SQL call.
//   - store/redislease keeps leases in Redis.
//   - store/groupcommit commits the writes of many clients together.
//   - store/waitqueue makes acquires wait for their turn.
//   - store/watch delivers the states of watched locks.
//   - store/keyring holds API keys in memory.
//   - store/readiness finds out whether the database takes commits.
//   - store/engine puts them together for a gateway.
//
// P1 to P15 are the promises of fencegate; docs/concepts.md states them.
//
// # What is authoritative
//
// The fence: one row for each resource. It holds the newest token granted, whether that grant may still write, and the
// token and sequence of the last accepted write. The SQL functions of package migrations make every decision with that
// row locked, by the database's clock. Nothing in these packages admits a write, remembers who holds a lock, or decides
// by another clock.
//
//	            acquire                     release, break
//	free ────────────────────▶ held ─────────────────────────▶ free
//	 ▲                        │    ▲                             (the fence is closed)
//	 │                 expiry │    │ acquire by another: the fence is raised,
//	 │                        ▼    │ writes of the late holder are rejected
//	 └──────────────────── expired ┘
//	    release, break     (the fence is open: a late holder that no other has replaced may finish)
//
// # The trust window
//
// A lease is live from its grant to its expiry, by the database's clock. What a client knows of it is the past: the
// client may be paused for an hour between reading "held until 12:00:30" and writing. Therefore a write carries its
// token, and the transaction that applies the write judges the token.
package store
