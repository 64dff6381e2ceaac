// Package load is the engine of "fencegate-bench load": clients that acquire, write, pause past their leases and come back,
// against running gateways, and a checker that compares every answer with the contract while they work.
//
// # What is checked
//
//	P1   no exclusive lease is granted while another lease is live on the name, and none beside a shared one
//	P2   tokens on a name rise in the order of grants
//	P3   once an acquire has returned a token, no write with a lower one is admitted, and none is found committed
//	P4   a write that was refused is not found; what is found, was sent
//	P6   a lease that has expired can't be renewed, nor one that was replaced be released
//	P9   what was acknowledged is found
//	P10  a numbered write is applied exactly once, however often it was sent, and is found as it was sent
//
// # Why there are no false alarms
//
// Two orders are certain. One is this process's clock: what was answered before something else was sent, happened
// before that. The checker takes its stamps, and reads what is known, under one mutex for each name: before a
// request is sent and after its answer was read. The other is the database's clock, as its answers show it, to the
// millisecond. Only what contradicts one of these is reported. What can't be known for sure (when a lost request
// arrived) is no violation.
//
// Writes are counted by versions: every write that is applied raises the version of its resource by one. So a version
// that none of the writes under way or in doubt can have made was made by a write that was applied twice, or by one
// that no client sent.
//
// Names are new in every run, and no other client may use them. What is kept of each is a window of the last grants and
// writes: memory does not grow with time.
package load
