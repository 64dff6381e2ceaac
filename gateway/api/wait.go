package api

// Waits is the answer to GET /v1/waits: who waits for whom, those who came first first.
type Waits struct {
	Waits []WaitOf `json:"waits"`
	// Truncated says that there are more waits, or more in the way of one of them.
	Truncated bool `json:"truncated"`
}

// WaitOf is a place in the line for a lock.
type WaitOf struct {
	OwnerID  string `json:"owner_id"`
	Lock     string `json:"lock"`
	Mode     string `json:"mode"`
	Scope    string `json:"scope"`
	QueuedAt Time   `json:"queued_at"`
	// For is who is in the way: the holders, then those before in the line, the nearest last.
	For []InTheWay `json:"for"`
}

// InTheWay is for whom somebody waits.
type InTheWay struct {
	OwnerID string `json:"owner_id"`
	// Relation is holds or before.
	Relation string `json:"relation"`
	// Lock is what it holds or waits for: another than is waited for where one of the two is a subtree.
	Lock string `json:"lock"`
}
