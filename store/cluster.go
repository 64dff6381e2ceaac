package store

import "github.com/google/uuid"

// CoordinatorNode is the name of the coordinator as a node, where it has names, too: its groupid in pg_dist_node.
const CoordinatorNode = "0"

// NameRange is a range of names of a cluster, by the hashes of their first segments, that a database has.
type NameRange struct {
	ID          uuid.UUID
	First, Last int64
	// MovesTo is the node to which the names move; "": they stay.
	MovesTo string
	// Sent says that all of them have arrived there.
	Sent bool
}

// Exported says which names have left a database for another one.
type Exported struct {
	Transfer uuid.UUID // zero: none
	// After is where the next call goes on; "": there are no more.
	After string
	// Skipped says that names stay for now, because another transaction has locked them.
	Skipped bool
}
