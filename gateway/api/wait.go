package api

// Waits is the answer to GET /v1/waits: the wait-for graph, the oldest waits first.
type Waits struct {
	Waits []WaitOf `json:"waits"`
	// Truncated says that there are more waits, or that one has more blockers.
	Truncated bool `json:"truncated"`
}

// WaitOf is a waiter in the queue of a lock.
type WaitOf struct {
	OwnerID  string `json:"owner_id"`
	Lock     string `json:"lock"`
	Mode     string `json:"mode"`
	Scope    string `json:"scope"`
	QueuedAt Time   `json:"queued_at"`
	// Principal sent the acquire; absent without authentication.
	Principal string `json:"principal,omitempty"`
	// For are its blockers: the holders, then the waiters ahead, the nearest last.
	For []Blocker `json:"for"`
}

// Blocker is an owner that a waiter waits for.
type Blocker struct {
	OwnerID string `json:"owner_id"`
	// Principal sent the acquire; absent without authentication.
	Principal string `json:"principal,omitempty"`
	// Relation is holds or before.
	Relation string `json:"relation"`
	// Lock is the one that it holds or waits for. It is not the lock waited for where one of the two is a subtree.
	Lock string `json:"lock"`
}
