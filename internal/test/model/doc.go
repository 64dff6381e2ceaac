// Package model explores fencegate's protocol exhaustively, on one name: every order of the steps of three clients, two
// gateways, a primary (D1) and its standby (D2). It checks each step against the promises P1 to P6, P9, P10 and P14 of
// docs/concepts.md. It is a model and not the code: where they differ, the code decides, and rule.go has to follow
// migrations/guard/rule/rule.sql.
//
// The protocol is a set of switches (Switch): safeguards, which fencegate implements, and assumptions about how it is
// run. With all of them on, no promise is broken. With one of them off, Explore returns the shortest run that breaks a
// promise, which shows what that switch is for. testdata/switches.txt holds these runs.
//
// # What is modelled
//
// A database is the log of its commits: grants, writes, releases. The standby has a prefix of the primary's log; once it
// is promoted, it continues with a log of its own. The fence is computed from the log. A client acquires, writes 1.1 and
// 1.2, sends a write again, reuses a number for other content, releases (perhaps giving up a write), and may present a
// token that nobody was granted. A request is in flight until a gateway passes it to a database, which commits it or
// not; later the client receives the answer. Replication is asynchronous in one initial state, synchronous in the other.
//
// A lease expires at any time, but only while a request waits for it: nothing else depends on that. In asynchronous
// replication, what the standby has received is chosen at its promotion, for the same reason.
//
// Delays need no steps of their own. A message that arrives late, a frozen client or gateway, a killed database: each is
// one that takes no steps for a while, or for ever, and all orders of steps contain that. A lost answer is one that is
// never received. Only two freezes are steps, since something else depends on them: D1 freezes, and is thawed after D2
// was promoted. From then on D2 may serve as well, or be gone.
//
// # Bounds
//
// Model.Requests bounds the requests that clients send in a run, retries included. Each client acquires once and writes
// two numbers. One failover happens, and one gateway is restarted. Tokens jump by ten. Everything else is unbounded, and
// every run within the bounds is explored.
//
// Not modelled: renewals, queues, subtrees, shared leases, policies, several fences in one write, a second failover.
package model
