package store

import (
	"context"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

// Overview is the state of the whole installation.
type Overview struct {
	// At is the database's clock.
	At        time.Time
	Inventory Inventory
	Database  DatabaseState
	// Gateways are in the order of their names, including those that were silent for up to a day, or have just ended.
	Gateways []GatewayState
	// Nodes are those of a cluster, in the order of their addresses; none without a cluster. Inventory counts what all of
	// them hold.
	Nodes []NodeState
}

// NodeState is the state of a node of a cluster.
type NodeState struct {
	Name, Address string
	// Failed is why it does not answer; nil if it does. Then the others are empty.
	Failed    error
	Inventory Inventory
	Database  DatabaseState
}

// DatabaseState is the state of the database.
type DatabaseState struct {
	// ReadOnly: a standby, or default_transaction_read_only is set. Nothing can be written.
	ReadOnly  bool
	Version   string
	SizeBytes int64
	// Connections and ConnectionsMax are those of the whole server.
	Connections, ConnectionsMax int64
	// OldestTransaction is how long the oldest transaction lasts, as far as the role may see others'.
	OldestTransaction time.Duration
	// OldestSnapshot is how long PostgreSQL has been kept from removing old versions of rows: by a transaction of this
	// database, also a prepared one, by a replication slot or by a standby (hot_standby_feedback), as far as the role
	// may see them. For slots and standbys it runs from when this process first saw them ask for that version.
	OldestSnapshot time.Duration
	// SynchronousExpected: a commit waits for standbys.
	SynchronousExpected bool
	// SynchronousStandbys is how many there are to wait for; nil where the role may not see it.
	SynchronousStandbys *int64
	Standbys            []Standby
	// Jumps is how often the tokens jumped past those of a database that was lost.
	Jumps    int64
	JumpedAt time.Time // zero: never
	BySQL    SQLTotals
}

// SQLTotals are what clients did by SQL, as PostgreSQL has counted it.
type SQLTotals struct {
	// SweptAt is when the sweep counted the rejections last; zero: never yet.
	SweptAt time.Time
	// Rejected includes those whose transaction was rolled back. A crash of the server may lose the last 32 of a cause.
	Rejected map[RejectionClass]int64
	// Unlisted is how many of them are not among the rejections.
	Unlisted int64
	// Guards is how often fence.guard, or what stands for it, has admitted a transaction. Unlike the others it is as of
	// now, and may go back to 0 with PostgreSQL's statistics. nil where these do not have it (track_functions).
	Guards *int64
}

// Standby is one that follows the database.
type Standby struct {
	Name, State, SyncState string
	// LagBytes are those that it has not replayed yet; nil where that is not known.
	LagBytes *int64
}

// Inventory is the result of the last count of what the database holds.
type Inventory struct {
	// At is when that was, by the database's clock; zero: never yet.
	At time.Time
	// Locks were granted or are waited for. Above 10,000, it and Expired are estimates.
	Locks int64
	// Held are leases that run; Expiring those of them that have less than a quarter of their TTL left. Expired are locks
	// whose holder is late, and not replaced yet.
	Held, Expiring, Expired int64
	// Overdue is how long ago the lease expired that has waited longest for a sweep to end it, also one of a session.
	Overdue time.Duration
	// Waiting are acquires in all queues; OldestWait is how long the first of them has waited.
	Waiting    int64
	OldestWait time.Duration
	// Stuck is how long the first waiter of a queue has gone without a lock that is free for it; the longest of all
	// queues.
	Stuck time.Duration
	// LeasesOf are the leases that run and the live sessions of each principal that has LeasesListed of them or more.
	LeasesOf map[string]int64
	// Sessions are those that live.
	Sessions int64
	// NewestToken is the greatest that was minted or granted.
	NewestToken int64
	// TablesEnforce and TablesObserve are protected tables in each mode. TablesWithProblems are those whose rows are not
	// all checked.
	TablesEnforce, TablesObserve, TablesWithProblems int64
}

// LeasesListed is the least number of leases that lists a principal in the inventory (fence.recount).
const LeasesListed = 1000

const (
	// SampleInterval is the time between two samples of a gateway.
	SampleInterval = 2 * time.Second
	// SilentAfter is the longest time between two samples of a gateway that serves.
	SilentAfter = 3*SampleInterval + time.Second
)

// WriteTimeBounds are the classes in which the durations of writes are counted, each with its upper bound in seconds:
// 100 µs, and each √2 times the one before, to 9.3 s. Those above are one class more.
var WriteTimeBounds = func() (bounds [34]float64) {
	for i := range bounds {
		exact := 1e-4 * math.Pow(math.Sqrt2, float64(i))
		bounds[i], _ = strconv.ParseFloat(strconv.FormatFloat(exact, 'g', 4, 64), 64)
	}
	return bounds
}()

// WriteTimes are numbers of writes, by class of how long they took.
type WriteTimes [len(WriteTimeBounds) + 1]int64

// Totals are what a gateway has counted since its start.
type Totals struct {
	Accepted int64
	Rejected map[RejectionClass]int64
	// Failed are the writes that got no verdict.
	Failed int64
	// Took are those of the accepted ones.
	Took WriteTimes
}

// GatewayState is the state of a gateway.
type GatewayState struct {
	ID      uuid.UUID
	Name    string
	Version string
	// StartedAt and SeenAt, when it sent the last sample, are by the database's clock.
	StartedAt, SeenAt time.Time
	// Silent gateways have sent no sample for a while: they have died, or don't reach the database.
	Silent bool
	// Ended gateways have shut down.
	Ended bool

	Waiting int64 // acquires that wait in it
	Streams int64 // of events that are open
	Queue   int64 // writes that wait for a batch

	ConnectionsBusy, ConnectionsMax int64 // to the database
	Listening                       bool
	Draining                        bool

	Totals
}

// PoolStats says how the connections to the database are used.
type PoolStats struct {
	Max, Busy, Idle int64
	// Waited counts the statements that had to wait for a connection.
	Waited int64
}

// DurationBounds are the bounds of Durations.UpTo.
var DurationBounds = [...]time.Duration{
	250 * time.Microsecond, 500 * time.Microsecond, time.Millisecond, 2500 * time.Microsecond, 5 * time.Millisecond,
	10 * time.Millisecond, 25 * time.Millisecond, 50 * time.Millisecond, 100 * time.Millisecond,
	250 * time.Millisecond, 500 * time.Millisecond,
	time.Second, 2500 * time.Millisecond, 5 * time.Second, 10 * time.Second,
}

// Durations counts durations from the beginning.
type Durations struct {
	Count uint64
	Sum   time.Duration
	// UpTo counts those up to each of DurationBounds, the shorter ones included.
	UpTo [len(DurationBounds)]uint64
}

// Histogram counts Durations. It is safe for concurrent use.
type Histogram struct {
	sum   atomic.Int64
	exact [len(DurationBounds) + 1]atomic.Uint64 // each without the shorter ones; the last: above all bounds
}

// Add counts one.
func (h *Histogram) Add(took time.Duration) {
	i, _ := slices.BinarySearch(DurationBounds[:], took)
	h.exact[i].Add(1)
	h.sum.Add(int64(took))
}

// Read returns the state now.
func (h *Histogram) Read() Durations {
	got := Durations{Sum: time.Duration(h.sum.Load())}
	for i := range h.exact {
		got.Count += h.exact[i].Load()
		if i < len(got.UpTo) {
			got.UpTo[i] = got.Count
		}
	}
	return got
}

// Swept counts what a sweep tidied.
type Swept struct {
	// Expired leases, whatever has ended them, count in one sweep each.
	Expired                                              int64
	LeasesForgotten, RejectionsForgotten, AuditForgotten int64
	// SessionsExpired had not been kept alive.
	SessionsExpired int64
}

// SweepStats are the statistics of complete sweeps.
type SweepStats struct {
	Took Durations
	// Last is when the last one ended, by this process's clock; zero if there was none yet.
	Last time.Time
}

// Tracing says where spans go, by OpenTelemetry's API. Its zero value gives none, and costs nothing.
type Tracing struct {
	// Provider makes the tracers; nil: nothing is traced.
	Provider trace.TracerProvider
	// LeaveOutNames keeps the names of locks, resources and keys out of the spans. Names of spans never have them.
	LeaveOutNames bool
}

// tracerName is the instrumentation scope of the spans of this package.
const tracerName = "github.com/fencegate/fencegate/store"

// Tracer makes the spans of package store and those below it; nil: none are made. All work for spans is behind a test
// for nil: without spans, a write costs nothing more.
func (t Tracing) Tracer() trace.Tracer {
	if t.Provider == nil {
		return nil
	}
	return t.Provider.Tracer(tracerName)
}

// SpanFailed marks a span as failed.
func SpanFailed(span trace.Span, err error) {
	span.SetStatus(codes.Error, strings.ToValidUTF8(err.Error(), "\uFFFD"))
}

// Probe finds out whether the database takes commits, on a connection outside of the pool.
type Probe interface {
	// Commit returns nil if the database can serve by this connection: it has this program's schema, takes writes, and has
	// committed one. Otherwise it returns ErrUnavailable, or an unknown error of the database. The text says what is wrong.
	Commit(ctx context.Context) error
	// UnderWay returns the commits that hang, of other connections. It returns ErrUnavailable.
	UnderWay(ctx context.Context) (ProbesUnderWay, error)
	// Close closes the connection, but does not wait long for a database that hangs.
	Close()
}

// ProbesUnderWay are the commits of all gateways' Probes that the database has not ended.
type ProbesUnderWay struct {
	Count int
	// WaitFor is what one of them waits for, as pg_stat_activity has it: type/event, or SyncRep if that is one.
	WaitFor string
}

// WaitsForStandby reports whether one of them waits for a synchronous standby.
func (u ProbesUnderWay) WaitsForStandby() bool { return u.WaitFor == "SyncRep" }
