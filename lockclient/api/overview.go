package api

// EventOverview is the name of the events of GET /v1/overview/stream.
const EventOverview = "overview"

// Overview is the answer to GET /v1/overview: the state of the database and of all gateways.
type Overview struct {
	At Time `json:"at"`
	// RangeMS is the time that the points cover, at least the requested one. StepMS is the time between two points.
	RangeMS int64 `json:"range_ms"`
	StepMS  int64 `json:"step_ms"`
	OverviewState
	Points []OverviewPoint `json:"points"`
}

// OverviewEvent is the data of the event "overview".
type OverviewEvent struct {
	At Time `json:"at"`
	OverviewState
	// Point is the work of all gateways in the last whole two seconds; absent while the database is unreachable.
	Point *OverviewPoint `json:"point,omitempty"`
}

// OverviewState is common to both. While the database is unreachable, it is the last known state.
type OverviewState struct {
	// Inventory is absent until the first count.
	Inventory *Inventory        `json:"inventory,omitempty"`
	Database  OverviewDatabase  `json:"database"`
	Gateways  []OverviewGateway `json:"gateways"`
	// Alerts is absent where the gateway that answers knows no Prometheus.
	Alerts *OverviewAlerts `json:"alerts,omitempty"`
}

// OverviewAlerts is what Prometheus said of the alerts of fencegate, a few seconds ago.
type OverviewAlerts struct {
	At Time `json:"at"`
	// Firing has the critical ones first, then the oldest; at most 20.
	Firing []Alert `json:"firing"`
	// Failed says why Prometheus could not be read; Firing is empty then.
	Failed string `json:"failed,omitempty"`
}

// Alert is an alert that fires.
type Alert struct {
	Name string `json:"name"`
	// Severity is critical or warning, or another of the rule.
	Severity   string `json:"severity"`
	Summary    string `json:"summary"`
	RunbookURL string `json:"runbook_url"`
	Since      Time   `json:"since"`
}

// Inventory is the contents of the database at the last count of one of the gateways.
type Inventory struct {
	At Time `json:"at"`
	// Locks are those that were ever granted or have waiters.
	Locks int64 `json:"locks"`
	// Held are live leases, Expiring those of them with less than a quarter of their TTL left.
	Held     int64 `json:"held"`
	Expiring int64 `json:"expiring"`
	// Expired are locks whose holder is late, and was not replaced.
	Expired      int64 `json:"expired"`
	Waiting      int64 `json:"waiting"`
	OldestWaitMS int64 `json:"oldest_wait_ms"`
	Sessions     int64 `json:"sessions"`
	// TablesEnforce and TablesObserve are protected tables by mode.
	TablesEnforce int64 `json:"tables_enforce"`
	TablesObserve int64 `json:"tables_observe"`
	// TablesWithProblems are those whose rows are not all checked.
	TablesWithProblems int64 `json:"tables_with_problems"`
}

// The states of a database.
const (
	DatabaseOK          = "ok"
	DatabaseReadOnly    = "read_only"
	DatabaseUnavailable = "unavailable"
)

// OverviewDatabase is the state of the database. Unknown fields are absent.
type OverviewDatabase struct {
	// State is ok, read_only or unavailable.
	State string `json:"state"`
	// Reason says why it takes no commits of the gateway that answers, as /readyz does; absent if it does.
	Reason string `json:"reason,omitempty"`
	// Detail says what is wrong.
	Detail string `json:"detail,omitempty"`

	*DatabaseFacts
}

// DatabaseFacts are the last known facts of the database.
type DatabaseFacts struct {
	Version   string `json:"version"`
	SizeBytes int64  `json:"size_bytes"`
	// Connections and ConnectionsMax are those of the whole server.
	Connections    int64 `json:"connections"`
	ConnectionsMax int64 `json:"connections_max"`
	// OldestTransactionMS is the age of the oldest transaction that the gateway's role may see.
	OldestTransactionMS int64 `json:"oldest_transaction_ms"`
	// SynchronousExpected says that commits wait for standbys.
	SynchronousExpected bool `json:"synchronous_expected"`
	// SynchronousStandbys is how many standbys commits can wait for; absent where the gateway's role may not see it.
	SynchronousStandbys *int64    `json:"synchronous_standbys,omitempty"`
	Standbys            []Standby `json:"standbys"`
	// NewestToken is the greatest token that was minted, as of the inventory.
	NewestToken int64 `json:"newest_token"`
	// Jumps is how often tokens jumped past those of a lost database.
	Jumps    int64 `json:"jumps"`
	JumpedAt *Time `json:"jumped_at,omitempty"`
	// RejectedBySQL counts all rejections by SQL, those among them whose transaction was rolled back. Codes without any
	// are absent.
	RejectedBySQL map[Code]int64 `json:"rejected_by_sql"`
	// UnlistedBySQL is how many of them the list of rejections misses.
	UnlistedBySQL int64 `json:"unlisted_by_sql"`
}

// Standby is a standby of the database.
type Standby struct {
	Name      string `json:"name"`
	State     string `json:"state"`
	SyncState string `json:"sync_state"`
	// LagBytes are the bytes not replayed yet; absent where that is not known.
	LagBytes *int64 `json:"lag_bytes,omitempty"`
}

// The states of a gateway.
const (
	GatewayServing  = "serving"
	GatewayDraining = "draining"
	GatewaySilent   = "silent"
)

// OverviewGateway is the state of a gateway.
type OverviewGateway struct {
	GatewayID string `json:"gateway_id"`
	Name      string `json:"name"`
	Version   string `json:"version"`
	StartedAt Time   `json:"started_at"`
	SeenAt    Time   `json:"seen_at"`
	// State is serving, draining: its clients move to others, or silent: it has not reported for a few seconds.
	State   string `json:"state"`
	Waiting int64  `json:"waiting"`
	Streams int64  `json:"streams"`
	Queue   int64  `json:"queue"`
	// ConnectionsBusy and ConnectionsMax are those to the database.
	ConnectionsBusy int64 `json:"connections_busy"`
	ConnectionsMax  int64 `json:"connections_max"`
	Listening       bool  `json:"listening"`
	// Self marks the gateway that answers.
	Self bool `json:"self"`
}

// OverviewPoint is the work of all gateways in one step of time, which begins at At. Without reports of gateways, it
// has no other field.
type OverviewPoint struct {
	At Time `json:"at"`

	*OverviewRates
}

// OverviewRates are writes per second.
type OverviewRates struct {
	AcceptedPerS float64 `json:"accepted_per_s"`
	// RejectedPerS has the codes that occurred.
	RejectedPerS map[Code]float64 `json:"rejected_per_s"`
	// RejectedByKindPerS has the same writes by kind.
	RejectedByKindPerS map[RejectionKind]float64 `json:"rejected_by_kind_per_s"`
	FailedPerS         float64                   `json:"failed_per_s"`
	// P50MS and P99MS are quantiles of the duration of accepted writes; null where there were none.
	P50MS *float64 `json:"p50_ms"`
	P99MS *float64 `json:"p99_ms"`
}

// Drain is the answer of /v1/drain: whether the gateway drains, and how much is open in it for which clients wait.
type Drain struct {
	Draining bool  `json:"draining"`
	Waiting  int64 `json:"waiting"`
	Streams  int64 `json:"streams"`
}

// Health is the answer to GET /healthz and GET /readyz.
type Health struct {
	Status string `json:"status"`
}
