// Package watch delivers the events of locks to the subscribers of one process.
//
// The database keeps the events of a lock while a process watches it. One goroutine, [Broadcast.Run], publishes the
// committed events of all watched locks, which gives them their IDs, reads them, and hands each to the subscriptions of
// its lock. Any process that watches a lock publishes its events, and one of them at a time.
//
// # States of a subscription
//
//	             WatchState                    events                      Close, too slow, events lost
//	Subscribe ──────────────▶ catching up ───────────────▶ following ───────────────────────────────────▶ ended
//	                          (resumed, or the lock as it is now)
//
// # Invariants
//
//   - A subscription returns the events of its lock in the order of their IDs, each once, and without a gap, from the
//     position that it began with to its end.
//   - It begins after the event that the subscriber names, if the events since then are kept and not too many.
//     Otherwise it begins with the state of the lock at one moment, and Missed says whether events are lost.
//   - A slow subscriber delays no other: it is ended with ErrSlowReader.
//
// # What happens on each failure
//
//   - A notification is lost: the poll finds the events.
//   - A transaction with an event stays open: its event comes after those that were published before its commit.
//   - The database crashes: events of the last moments may come again, with another ID.
//   - The database is unreachable: events are late. If it is away for so long that it keeps no more events for this
//     process, the subscriptions end with ErrUnavailable. A client can subscribe again after its last event.
//   - This process dies: others publish the events. The database drops the events of its watches after a minute.
package watch
