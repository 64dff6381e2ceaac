package api

// EventOverview is the name of the events of GET /v1/overview/stream.
const EventOverview = "overview"

// Overview is the answer to GET /v1/overview: how all of it is.
type Overview struct {
	At Time `json:"at"`
	// RangeMS is the time that the points cover, at least what was asked for; StepMS the time from one to the next.
	RangeMS int64 `json:"range_ms"`
	StepMS  int64 `json:"step_ms"`
	OverviewState
	Points []OverviewPoint `json:"points"`
}

// OverviewEvent is the data of the event "overview".
type OverviewEvent struct {
	At Time `json:"at"`
	OverviewState
	// Point is what all gateways did in the last whole two seconds; absent while the database is away.
	Point *OverviewPoint `json:"point,omitempty"`
}

// OverviewState is what both tell. While the database is away, it is the last that is known.
type OverviewState struct {
	// Inventory is absent until it was counted for the first time.
	Inventory *Inventory        `json:"inventory,omitempty"`
	Database  OverviewDatabase  `json:"database"`
	Gateways  []OverviewGateway `json:"gateways"`
}

// Inventory is what there was in the database when one of the gateways counted last.
type Inventory struct {
	At Time `json:"at"`
	// Locks were granted or are waited for.
	Locks int64 `json:"locks"`
	// Held are leases that run; Expiring those of them with less than a quarter of their TTL left.
	Held     int64 `json:"held"`
	Expiring int64 `json:"expiring"`
	// Expired are locks whose holder is late, and whom nobody has replaced.
	Expired      int64 `json:"expired"`
	Waiting      int64 `json:"waiting"`
	OldestWaitMS int64 `json:"oldest_wait_ms"`
	Sessions     int64 `json:"sessions"`
}

// The states of a database.
const (
	DatabaseOK          = "ok"
	DatabaseReadOnly    = "read_only"
	DatabaseUnavailable = "unavailable"
)

// OverviewDatabase is how the database is. What is not known is absent.
type OverviewDatabase struct {
	// State is ok, read_only or unavailable.
	State string `json:"state"`
	// Detail says what is wrong.
	Detail string `json:"detail,omitempty"`

	*DatabaseFacts
}

// DatabaseFacts are what is known of the database.
type DatabaseFacts struct {
	Version   string `json:"version"`
	SizeBytes int64  `json:"size_bytes"`
	// Connections and ConnectionsMax are all of the server's.
	Connections    int64 `json:"connections"`
	ConnectionsMax int64 `json:"connections_max"`
	// OldestTransactionMS is how long the oldest transaction lasts that the gateway's role may see.
	OldestTransactionMS int64 `json:"oldest_transaction_ms"`
	// SynchronousExpected: a commit waits for standbys.
	SynchronousExpected bool `json:"synchronous_expected"`
	// SynchronousStandbys is how many there are to wait for; absent where the gateway's role may not see it.
	SynchronousStandbys *int64    `json:"synchronous_standbys,omitempty"`
	Standbys            []Standby `json:"standbys"`
	// NewestToken is the greatest that was minted, as of the inventory.
	NewestToken int64 `json:"newest_token"`
	// Jumps is how often tokens jumped past those of a database that was lost.
	Jumps    int64 `json:"jumps"`
	JumpedAt *Time `json:"jumped_at,omitempty"`
}

// Standby is a database that follows.
type Standby struct {
	Name      string `json:"name"`
	State     string `json:"state"`
	SyncState string `json:"sync_state"`
	// LagBytes are not replayed yet; absent where that is not known.
	LagBytes *int64 `json:"lag_bytes,omitempty"`
}

// The states of a gateway.
const (
	GatewayServing = "serving"
	GatewaySilent  = "silent"
)

// OverviewGateway is how a gateway is.
type OverviewGateway struct {
	GatewayID string `json:"gateway_id"`
	Name      string `json:"name"`
	Version   string `json:"version"`
	StartedAt Time   `json:"started_at"`
	SeenAt    Time   `json:"seen_at"`
	// State is serving, or silent: it was not heard of for a few seconds.
	State   string `json:"state"`
	Waiting int64  `json:"waiting"`
	Streams int64  `json:"streams"`
	Queue   int64  `json:"queue"`
	// ConnectionsBusy and ConnectionsMax are those to the database.
	ConnectionsBusy int64 `json:"connections_busy"`
	ConnectionsMax  int64 `json:"connections_max"`
	Listening       bool  `json:"listening"`
	// Self is the gateway that answers.
	Self bool `json:"self"`
}

// OverviewPoint is what all gateways did in one step of time, which begins at At. Where no gateway told, there is nothing else.
type OverviewPoint struct {
	At Time `json:"at"`

	*OverviewRates
}

// OverviewRates are writes per second.
type OverviewRates struct {
	AcceptedPerS float64 `json:"accepted_per_s"`
	// RejectedPerS has the codes that there were.
	RejectedPerS map[Code]float64 `json:"rejected_per_s"`
	FailedPerS   float64          `json:"failed_per_s"`
	// P50MS and P99MS are how long accepted writes took; null where there were none.
	P50MS *float64 `json:"p50_ms"`
	P99MS *float64 `json:"p99_ms"`
}
