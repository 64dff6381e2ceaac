// Package cluster serves the names of several databases as those of one. Each name is at one of them, its node: that of
// its first segment, so a tree of names is at one node, and every decision about a name is made by its node alone.
//
//	gateway ─▶ Cluster ─┬─ Engine of the coordinator   policies, keys, rejections, the audit log
//	                    └─ Engine of each node         locks, fences and records of its names
//
// The coordinator says which node has which names: fencegate.placements() returns ranges of hashes (see hash). With
// Citus these are the shards of a table that is distributed as the users' tables are, so a name is at the node of the
// rows that it protects.
//
// # Moves
//
// The nodes themselves know which names they have (fence.ranges). Where the coordinator says otherwise, [Cluster.Move]
// takes the names from one node to the other, a tree at a time. A node that is asked for a name which it does not have
// answers ErrElsewhere, and changes nothing. Then the call is repeated, by a newer placement, until the name has
// arrived.
//
// # What happens on each failure
//
//   - A node does not answer: calls for its names fail with ErrUnavailable. Names of other nodes notice nothing.
//   - The coordinator does not answer: the placement that was read last stays in use.
//   - A move fails in the middle: the next one finds what was on its way, and goes on.
package cluster
