// Package demo tells the story that fencegate exists for, on real processes, a real gateway and a real PostgreSQL.
//
// A worker takes a lock and begins to work. The operating system freezes it (SIGSTOP) until long after its lease has expired: what a
// garbage collection, a live migration or a closed laptop does. Another worker is granted the lock, works, and
// writes. The first one is thawed (SIGCONT), knows nothing of all this, and writes.
//
// Told twice: with the write sent through the fence, and with the write sent straight to a plain table in the same
// PostgreSQL, under the same lock, after the worker has looked whether its lease is still good.
//
// Or again and again before gateways that run anyway, for somebody who looks at their dashboard: only through the fence.
package demo
