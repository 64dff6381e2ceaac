package api

import "encoding/json"

// AuditEntry is an action of an administrator.
type AuditEntry struct {
	ID int64 `json:"id"` // a newer entry has a greater one
	At Time  `json:"at"`
	// Principal is who did it; "sql:" and a role for an action by SQL.
	Principal string `json:"principal"`
	// Address is that of the client; "local" for a local connection to the database.
	Address string `json:"address"`
	// Action is what was done, like "policy_set" or "lease_broken".
	Action string `json:"action"`
	// Name is the lock, the resource, or the prefix of the policy; absent where the action was on none, or on all names.
	Name string `json:"name,omitempty"`
	// Details is a JSON object. Its members depend on the action.
	Details json.RawMessage `json:"details"`
}

// Audit is a page of GET /v1/audit, the newest entry first.
type Audit struct {
	Entries    []AuditEntry `json:"entries"`
	NextCursor string       `json:"next_cursor,omitempty"`
}
