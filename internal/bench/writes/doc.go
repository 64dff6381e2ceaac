// Package writes measures fenced writes beside direct, unfenced ones: same server, same run, same values, in turn. The
// figures to quote are the ratios of a round, for the machine's speed drifts between rounds.
//
//	direct   an upsert by pgx from a pool, one statement, autocommit, no fence: what one would do without fencegate
//	store    the same write through package store, with its fence
//	http     the same write through a gateway process, over keep-alive connections
//
// Values are random bytes; every client writes to resources of its own, numbered, round and round.
package writes
