package api

// EventOverview is the name of the events of GET /v1/overview/stream.
const EventOverview = "overview"

// Overview is the answer to GET /v1/overview: the state of the database and of all gateways.
type Overview struct {
	At Time `json:"at"`
	// The time that the points cover: what was asked for, or a little more.
	RangeMS int64 `json:"range_ms" schema:"minimum=60000"`
	// The time from one point to the next.
	StepMS int64 `json:"step_ms" schema:"minimum=2000"`
	OverviewState
	// Oldest first, at most 150. The last is of the last whole two seconds.
	Points []OverviewPoint `json:"points" schema:"minItems=1 maxItems=150"`
}

// OverviewEvent is the data of the event "overview".
type OverviewEvent struct {
	At Time `json:"at"`
	OverviewState
	// The last whole two seconds. Absent while the database is unreachable.
	Point *OverviewPoint `json:"point,omitempty"`
}

// OverviewState is common to both. While the database is unreachable, it is the last known state.
type OverviewState struct {
	Inventory *Inventory       `json:"inventory,omitempty"`
	Database  OverviewDatabase `json:"database"`
	// The work of all gateways in the last minute, or since this gateway knows it. Absent while it knows nothing.
	LastMinute *OverviewRates `json:"last_minute,omitempty"`
	// By name. A gateway that shut down is not listed; one that died is, until it is deleted.
	Gateways []OverviewGateway `json:"gateways" schema:"minItems=1"`
	// The nodes of a cluster (`--cluster`), by address. The inventory counts what all of them hold.
	Nodes  []OverviewNode  `json:"nodes,omitempty" schema:"maxItems=1000"`
	Alerts *OverviewAlerts `json:"alerts,omitempty"`
}

// OverviewAlerts is what Prometheus said of the alerts of fencegate, a few seconds ago. Absent where the gateway that
// answers knows no Prometheus (--prometheus-url).
type OverviewAlerts struct {
	At Time `json:"at"`
	// The critical ones first, then the oldest.
	Firing []Alert `json:"firing" schema:"maxItems=20"`
	// Why Prometheus could not be read.
	Failed string `json:"failed,omitempty"`
}

// Alert is an alert that fires.
type Alert struct {
	Name string `json:"name"`
	// Critical, warning, or another of the rule.
	Severity   string `json:"severity"`
	Summary    string `json:"summary"`
	RunbookURL string `json:"runbook_url"`
	Since      Time   `json:"since"`
}

// Inventory is what there was when a gateway counted last, some two seconds ago (longer where counting takes long).
// Absent until it was counted once.
type Inventory struct {
	At Time `json:"at"`
	// That were ever granted or are waited for. Above 10,000 an estimate.
	Locks int64 `json:"locks" schema:"minimum=0"`
	// Leases that run.
	Held int64 `json:"held" schema:"minimum=0"`
	// Of those, the ones with less than a quarter left of their TTL, or of their session's.
	Expiring int64 `json:"expiring" schema:"minimum=0"`
	// Locks whose holder is late, and that were not granted since. Above 10,000 an estimate.
	Expired int64 `json:"expired" schema:"minimum=0"`
	// Acquires in all queues.
	Waiting int64 `json:"waiting" schema:"minimum=0"`
	// How long the first of them has waited.
	OldestWaitMS int64 `json:"oldest_wait_ms" schema:"minimum=0"`
	// Live sessions.
	Sessions int64 `json:"sessions" schema:"minimum=0"`
	// Protected tables in the mode `enforce`.
	TablesEnforce int64 `json:"tables_enforce" schema:"minimum=0"`
	// Protected tables in the mode `observe`.
	TablesObserve int64 `json:"tables_observe" schema:"minimum=0"`
	// Protected tables whose rows are not all checked.
	TablesWithProblems int64 `json:"tables_with_problems" schema:"minimum=0"`
}

// The states of a database.
const (
	DatabaseOK          = "ok"
	DatabaseReadOnly    = "read_only"
	DatabaseUnavailable = "unavailable"
)

// OverviewDatabase is the state of the database. What is not known is absent. Where the state is `unavailable` all but
// `state`, `reason` and `detail` is the last that is known.
type OverviewDatabase struct {
	// `read_only`: a standby, or default_transaction_read_only is set. `unavailable`: it does not answer, or takes no
	// commits.
	State string `json:"state" schema:"enum=ok|read_only|unavailable"`
	// Why it takes no commits of the gateway that answers, as `/readyz` has it.
	Reason string `json:"reason,omitempty"`
	// What is wrong, for people.
	Detail string `json:"detail,omitempty"`

	*DatabaseFacts
}

// DatabaseFacts are the last known facts of the database.
type DatabaseFacts struct {
	Version   string `json:"version"`
	SizeBytes int64  `json:"size_bytes" schema:"minimum=0"`
	// Of all clients of the server.
	Connections    int64 `json:"connections" schema:"minimum=0"`
	ConnectionsMax int64 `json:"connections_max" schema:"minimum=0"`
	// How long the oldest transaction lasts that the gateway's role may see.
	OldestTransactionMS int64 `json:"oldest_transaction_ms" schema:"minimum=0"`
	// Whether a commit waits for standbys.
	SynchronousExpected bool `json:"synchronous_expected"`
	// How many there are to wait for. Absent where the gateway's role may not see it (`pg_read_all_stats`).
	SynchronousStandbys *int64    `json:"synchronous_standbys,omitempty" schema:"minimum=0"`
	Standbys            []Standby `json:"standbys" schema:"maxItems=100"`
	// The greatest that was minted, as of the inventory.
	NewestToken int64 `json:"newest_token" schema:"TokenOrNone"`
	// How often tokens jumped past those of a database that was lost.
	Jumps    int64 `json:"jumps" schema:"minimum=0"`
	JumpedAt *Time `json:"jumped_at,omitempty"`
	// Rejections by SQL, by code, those among them whose transaction was rolled back. Codes without any are absent.
	RejectedBySQL map[Code]int64 `json:"rejected_by_sql"`
	// Those that tables of the mode `observe` let pass, likewise.
	ObservedBySQL map[Code]int64 `json:"observed_by_sql"`
	// How many of both the list of rejections misses, as of the last sweep: too many came at once, or by `fence.guard`
	// for a name on which no lease was ever granted.
	UnlistedBySQL int64 `json:"unlisted_by_sql" schema:"minimum=0"`
	// How often `fence.guard` has admitted a transaction, since PostgreSQL's statistics were reset. Absent where these
	// do not have it: `track_functions` is `none`.
	GuardsBySQL *int64 `json:"guards_by_sql,omitempty" schema:"minimum=0"`
}

// Standby is a standby of the database.
type Standby struct {
	Name string `json:"name"`
	// As pg_stat_replication has it.
	State string `json:"state"`
	// As pg_stat_replication has it.
	SyncState string `json:"sync_state"`
	// Not replayed yet. Absent where that is not known.
	LagBytes *int64 `json:"lag_bytes,omitempty"`
}

// OverviewNode is the state of a node of a cluster.
type OverviewNode struct {
	Name    string `json:"name"`
	Address string `json:"address"`
	// `unavailable`: it does not answer, and so do not the names that it has. What it holds is not known then.
	State string `json:"state" schema:"enum=ok|read_only|unavailable"`
	// What is wrong, for people.
	Detail string `json:"detail,omitempty"`

	*NodeFacts
}

// NodeFacts are the facts of a node that answers.
type NodeFacts struct {
	Version string `json:"version"`
	// Of all clients of the server.
	Connections    int64 `json:"connections" schema:"minimum=0"`
	ConnectionsMax int64 `json:"connections_max" schema:"minimum=0"`
	// How often its tokens jumped past those of a database that was lost.
	Jumps int64 `json:"jumps" schema:"minimum=0"`
	// Leases that run.
	Held int64 `json:"held" schema:"minimum=0"`
	// Acquires in its queues.
	Waiting int64 `json:"waiting" schema:"minimum=0"`
	// That were ever granted or are waited for. Above 10,000 an estimate.
	Locks int64 `json:"locks" schema:"minimum=0"`
}

// The states of a gateway.
const (
	GatewayServing  = "serving"
	GatewayDraining = "draining"
	GatewaySilent   = "silent"
)

// OverviewGateway is the state of a gateway.
type OverviewGateway struct {
	GatewayID string `json:"gateway_id" schema:"format=uuid pattern=^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"`
	// `--gateway-name`, or the address on which it serves.
	Name      string `json:"name" schema:"minLength=1 maxLength=100"`
	Version   string `json:"version"`
	StartedAt Time   `json:"started_at"`
	SeenAt    Time   `json:"seen_at"`
	// `draining`: its clients move to others. `silent`: it has not reported for 7 s. It has died, or can't reach the
	// database.
	State string `json:"state" schema:"enum=serving|draining|silent"`
	// Acquires that wait in it.
	Waiting int64 `json:"waiting" schema:"minimum=0"`
	// Streams of events that it has open.
	Streams int64 `json:"streams" schema:"minimum=0"`
	// Writes that wait to be committed.
	Queue int64 `json:"queue" schema:"minimum=0"`
	// Of its connections to the database.
	ConnectionsBusy int64 `json:"connections_busy" schema:"minimum=0"`
	ConnectionsMax  int64 `json:"connections_max" schema:"minimum=0"`
	// Whether the database can notify it; otherwise waiters are served by polling.
	Listening bool `json:"listening"`
	// Whether it is the one that answers.
	Self bool `json:"self"`
}

// OverviewPoint is the work of all gateways in a step of time, which begins at `at`. Without reports it has no other
// field.
type OverviewPoint struct {
	At Time `json:"at"`

	*OverviewRates
}

// OverviewRates are writes per second, by HTTP and by SQL.
type OverviewRates struct {
	// Those by SQL only while `guards_by_sql` is known. PostgreSQL may report them some seconds late.
	AcceptedPerS float64 `json:"accepted_per_s" schema:"minimum=0"`
	// By code; only those that there were.
	RejectedPerS map[Code]float64 `json:"rejected_per_s"`
	// The same writes by kind, as `kind` of a rejection; only those that there were.
	RejectedByKindPerS map[RejectionKind]float64 `json:"rejected_by_kind_per_s"`
	// Writes by SQL that passed, because their table is in the mode `observe`, by kind; only those that there were.
	ObservedByKindPerS map[RejectionKind]float64 `json:"observed_by_kind_per_s"`
	// Writes by HTTP that got no verdict, mostly since the database did not answer.
	FailedPerS float64 `json:"failed_per_s" schema:"minimum=0"`
	// How long accepted writes by HTTP took in the gateway, of which half were faster. null: there were none.
	P50MS *float64 `json:"p50_ms" schema:"minimum=0 nullable"`
	// Likewise, of which 99 in 100 were faster.
	P99MS *float64 `json:"p99_ms" schema:"minimum=0 nullable"`
}

// Drain is the answer of /v1/drain: whether the gateway drains, and how much is open in it for which clients wait.
type Drain struct {
	Draining bool `json:"draining"`
	// Acquires that wait in the gateway.
	Waiting int64 `json:"waiting" schema:"minimum=0"`
	// Open event streams.
	Streams int64 `json:"streams" schema:"minimum=0"`
}

// Health is the answer to GET /healthz and GET /readyz.
type Health struct {
	Status string `json:"status" schema:"enum=ok|ready"`
}
