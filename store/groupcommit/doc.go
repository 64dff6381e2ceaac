// Package groupcommit commits the writes of many callers together.
//
// Writes that come while earlier ones commit go to the database in one round trip and one commit. No timer delays a
// write: where a batch may be started, a write goes at once.
//
// # States of a write
//
//	Commit,          first of its resource           worker, or the caller itself
//	Submit ──▶ queued ─────────────────────▶ in a batch ─────────────────────────▶ verdict
//	  │          ▲                              │
//	  │          └──── put off: fence locked ◀──┤
//	  ▼ full, closed, ctx ended                 ▼ the statement failed
//	not applied                              error, and the writes behind it on its resource are not applied
//
// A resource with writes is in one of three lanes, each with its own bound on batches in flight: quick; large, where
// the next value is large; and lock-wait, where another session had locked the fence.
//
// # Invariants
//
//   - P4: no verdict is delivered before the commit, and each write gets exactly one.
//   - Writes to one resource are decided in the order in which they came. They are never in two batches at a time.
//   - A write gets the verdict that it would have got alone. Its neighbours in a batch neither fail it nor delay it.
//   - Where a write could not be decided, the writes behind it on its resource are not applied either: a holder that
//     numbers its writes sends them again from the first that failed.
//   - P13: the writes that wait are bounded: all of them, those of one resource, and those for locked fences.
//
// # What happens on each failure
//
//   - The database is unreachable: all rows of the batch get ErrUnavailable. Its outcome says whether they may be
//     applied.
//   - One row fails by itself: the batch is split in halves until that row is alone. It gets the error, the others
//     their verdicts.
//   - Another session has locked a fence: the rows that need it are put off to the lock-wait lane. If it is not known
//     which of several resources is locked, each of them goes alone once.
//   - The lock is not released within the statement timeout: the write gets ErrLocked.
//   - A caller leaves: its write is withdrawn if it waits. If it was sent, its outcome is unknown to the caller.
//   - The Group is full: the write gets ErrOverloaded at once.
//
// The Group does not send again a statement that the database rolled back (40001, 40P01): package postgres does that, at
// most six times for each call of ExecWrites. Afterwards the rows get ErrUnavailable with outcome not_applied.
package groupcommit
