// Package redislease keeps leases in Redis: in one server (also behind Sentinels, or a Cluster), or in a majority of
// several independent ones (Redlock). Tokens and fences stay in PostgreSQL.
//
// Redis has what is frequent and cheap: who holds a lock, and until when. A renewal asks Redis alone. PostgreSQL has
// what must not be lost: the token, and the fence that rejects the writes of everybody who has lost the lock.
//
// # What is authoritative
//
// The key of a lock decides whether a lease runs. It is the key prefix and the name. Its value is JSON (see value). It
// is set by SET NX PX, so it excludes the locks of redsync and redislock under the same name, and is excluded by them.
// The clock of each server decides when its key expires.
//
// PostgreSQL decides which writes pass. Its row of a lease is a record: an exclusion against leases of other providers,
// and what lists and events show. [Leases.Run] asks Redis for leases whose row may be out of date.
//
// # States of a lock
//
//	     reserve                      mint                    confirm
//	free ───────▶ reserved by the key ────▶ the fence is raised ──────▶ held ──┐ renew
//	 ▲               │                        │                          ▲ │  │
//	 │   the mint    │             the key    │                          └─┼──┘
//	 │   failed      │             was lost   │        release, break:     │
//	 └───────────────┴────────────────────────┘        fence, then key     │
//	 ▲                 the lease is given back                             │
//	 └─────────────────────────────────────────────────────────────────────┘ or the key expires
//
// [Leases.Acquire] returns a lease after all three steps. A reservation lasts 5 s, whatever the TTL: a short one need
// not cover the mint, and a long one blocks nobody if this process dies. The TTL begins with the confirmation.
//
// # Invariants
//
//   - P3: the fence is raised before the lease is returned. A release closes the fence before it frees the key.
//   - P6: scripts compare lease_id, owner_id and fencing_token, in the server. A repeated request_id must come from the
//     same principal, and the database checks the policy on owners before Redis answers anything.
//   - A lease is returned only after a quorum has confirmed it, with time left. Quorums of one set of servers overlap.
//   - A key that another lease or another program has written is never overwritten, and only a break deletes it. There is
//     one exception: a lease whose token is lower than one granted since (see confirm.lua). The fence has shut it out.
//   - Each call of a server is bounded by Config.Timeout; an acquire that does not wait by a few of them and the mint.
//
// P1 is not promised. Two leases run at the same time if Redis forgets the first: a replica is promoted that lacks the
// key, a clock jumps, memory is short and keys are evicted. The fence makes this harmless: it admits the newer alone.
//
// # Redlock
//
// This is the algorithm of https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/: the servers are
// asked at the same time; a majority must agree; a lease is valid for its TTL, less the time that it took to get, less
// the drift of the clocks; a failed attempt is undone everywhere and repeated after a random pause. M. Kleppmann ("How
// to do distributed locking", 2016) describes why that is not enough without fencing: pauses of the client, and clocks
// that jump.
//
// The restart rule of that description is checked, not assumed. A marker in each server (fencegate//server, which is no
// name of a lock) has the server's run_id and the time since which it is known. A server that was restarted or flushed
// has another run_id or no marker. It does not vote for new leases until all leases that it may have lost have run out:
// Config.TTLMax. Renewals and releases use it as before. Run marks servers. So servers that fencegate has never used
// vote a TTLMax after the first gateway has started.
//
// # Waiting
//
// Within one process, waiters are served first come, first served, and only the first of a lock asks Redis. Between
// processes there is no order. The end of a lease is published, the key's PTTL is known, and the first waiter polls
// (Config.PollInterval): seldom while the end of the lease is published and this process listens to all servers, often
// otherwise. There is no detection of deadlocks: waits end with their time.
//
// # What happens on each failure
//
//   - This process dies between two steps: the reservation expires. No client was sent the lease, and the next grant raises
//     the fence above it.
//   - The mint fails: the reservation is deleted. If the outcome is unknown, the lease is given back if the database shows
//     it within 5 s. Otherwise its row ends when PostgreSQL stops believing in it; leases of this provider do not wait for
//     that.
//   - The key is lost during the mint, or is another's by then: the lease is given back, fence first. A waiter continues.
//   - The answer of a server is lost: what it may have reserved is deleted in the background, or expires.
//   - The client leaves during an acquire: the lease is given back. If it has a request_id, and the lease is confirmed by
//     then, the lease stays: the same request sent again may have been answered with it.
//   - PostgreSQL is unreachable: acquires and releases fail; renewals work.
//   - A server is down, slow, full, read-only, or refuses: ErrUnavailable (ErrProviderUnavailable) with the reason of each
//     server, after Config.Timeout at the latest. A [Failure] names what to do. With Redlock, a minority may fail.
//   - A release finds Redis unreachable: the fence is closed, the key stays until its TTL is over. The release sent again
//     deletes it.
//   - A server was restarted empty: a quorum still has the leases. Run copies their keys to it. So a renewed lease
//     outlives the restart of one server after the other, if Run has looked at it between them.
//   - The connection for published releases is lost, or silent for 2 s: the waiters poll often. When it is back, they try.
package redislease
