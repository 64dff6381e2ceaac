// Package tables measures fenced writes to a user's own tables beside unfenced ones: same server, same run, in turn.
// The figures to quote are the ratios of a round, for the machine's speed drifts between rounds.
//
// A write is one update of one row. Every client has a resource of its own and a connection of its own, and numbers its
// writes. Except for by-hand, a transaction is one round trip: a pipeline of prepared statements.
//
//	bare                  the update alone, autocommitted: the base of the ratios
//	pipelined             begin, update, commit
//	guarded               begin, fence.guard, update, commit: on a table that is not protected
//	protected             the same on a protected table (statement triggers)
//	protected-implicit    fence.guard and the update in one pipeline without begin and commit, which is a transaction, too
//	partitioned           begin, update, commit on a partitioned table
//	partitioned-protected with fence.guard, on a protected partitioned table (row triggers)
//	settings              begin, set_config('fencegate.token', …), update, commit on the protected table: no guard
//	by-hand               begin, select for update of a token, compare in the client, update, commit: one by one
//
// Five updates of one resource are one transaction, too: in one round trip, and in a round trip for each statement.
package tables
