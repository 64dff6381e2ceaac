package store

import (
	"context"
	"math"
	"strconv"
	"time"

	"github.com/google/uuid"
)

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

// GatewayState is how a gateway is.
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

	Totals
}

// KeepSample stores the state of a gateway that was started the time uptime ago, in place of its sample before. It
// returns when that was, by the database's clock, or ErrUnavailable.
func (s *Store) KeepSample(ctx context.Context, state GatewayState, uptime time.Duration) (at time.Time, err error) {
	rejected := state.Rejected
	if rejected == nil {
		rejected = map[RejectionClass]int64{}
	}
	err = s.queryRow(ctx, statement{},
		"select fence.keep_sample($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)",
		[]any{
			state.ID, state.Name, state.Version, uptime.Milliseconds(),
			state.Waiting, state.Streams, state.Queue, state.ConnectionsBusy, state.ConnectionsMax, state.Listening,
			state.Accepted, rejected, state.Failed, state.Took[:],
		}, &at)
	return at, err
}

// ForgetGateway notes that a gateway has ended. The sweep deletes its state a minute later. It returns ErrUnavailable.
func (s *Store) ForgetGateway(ctx context.Context, id uuid.UUID) error {
	return s.exec(ctx, statement{}, "select fence.forget_gateway($1)", id)
}
