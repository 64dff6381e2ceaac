package api

// Rejection is a write that was shut out, or several alike: a zombie that hammers is one with a count.
type Rejection struct {
	ID       int64  `json:"id"`
	Resource string `json:"resource"`
	Key      string `json:"key,omitempty"`
	Code     Code   `json:"code"`
	Reason   string `json:"reason,omitempty"`
	// Token is what was presented; absent where nothing was.
	Token        *int64 `json:"token,omitempty"`
	Sequence     *int64 `json:"sequence,omitempty"`
	GrantedToken int64  `json:"granted_token"`
	LastToken    int64  `json:"last_token"`
	LastSequence int64  `json:"last_sequence"`
	// SupersededBy is the newer token that shut it out; absent where the reason is not "superseded".
	SupersededBy *int64 `json:"superseded_by,omitempty"`
	// OwnerID is whose lease the token belonged to, while that is remembered.
	OwnerID string `json:"owner_id,omitempty"`
	// LateMS is how long after its lease had ended the latest came.
	LateMS  *int64 `json:"late_ms,omitempty"`
	Source  string `json:"source"`
	Address string `json:"address,omitempty"`
	Count   int64  `json:"count"`
	FirstAt Time   `json:"first_at"`
	LastAt  Time   `json:"last_at"`
}

// Rejections is a page of GET /v1/rejections.
type Rejections struct {
	Rejections []Rejection `json:"rejections"`
	NextCursor string      `json:"next_cursor,omitempty"`
}

// RejectionSummary is the answer to GET /v1/rejections/summary.
type RejectionSummary struct {
	// Writes counts every rejected write, Groups those alike once.
	Writes int64 `json:"writes"`
	Groups int64 `json:"groups"`
	// ByCode has how many writes were rejected with each code that there is.
	ByCode map[Code]int64 `json:"by_code"`
	// Owners and Resources are the 20 with the most writes, those first. Writes whose owner is not known are of no owner.
	Owners    []RejectedOwner    `json:"owners"`
	Resources []RejectedResource `json:"resources"`
}

// RejectionCount counts the rejections of one owner, or of one resource.
type RejectionCount struct {
	Writes int64 `json:"writes"`
	Groups int64 `json:"groups"`
	// LateMSMax is the greatest late_ms among them; absent where there is none.
	LateMSMax *int64 `json:"late_ms_max,omitempty"`
	LastAt    Time   `json:"last_at"`
}

// RejectedOwner is an owner whose writes were shut out.
type RejectedOwner struct {
	OwnerID string `json:"owner_id"`
	RejectionCount
}

// RejectedResource is a resource that writes were shut out of.
type RejectedResource struct {
	Resource string `json:"resource"`
	RejectionCount
}
