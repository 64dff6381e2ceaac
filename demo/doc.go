// Package demo shows why fencegate exists, with real processes, a real gateway and a real PostgreSQL.
//
// A worker acquires a lock and begins to work. SIGSTOP freezes it until long after its lease has expired, as a garbage
// collection, a live migration or a closed laptop might. Another worker acquires the lock, works, and writes. SIGCONT
// thaws the first one, which knows nothing of all this, and writes.
//
// Zombie runs two variants. In the fenced one, workers write through the gateway. In the unfenced one, they write to a
// plain table in the same PostgreSQL, under the same lock, after they looked whether their lease is still live. With
// Config.Gateways it runs the fenced variant again and again, on gateways that already run.
//
// GCPause runs the same two variants with the same workers, as do the demos of package staged. Each is a Failure: a value
// with what happens before A asks for the lock, while A works, when B has the lock, and when B has written.
package demo
