// Package watch delivers the events of locks to the subscribers of one process.
//
// The database keeps the events of a lock while a process watches it. One goroutine, [Broadcast.Run], reads the events
// of all watched locks and hands each to the subscriptions of its lock.
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
//   - The database is unreachable: events are late. If it is away for so long that it keeps no more events for this
//     process, the subscriptions end with ErrUnavailable. A client can subscribe again after its last event.
//   - This process dies: the database drops the events of its watches after a minute.
package watch
