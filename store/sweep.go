package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
)

const (
	// sweepRowsMax is how much one statement tidies of each kind, so that none takes long.
	sweepRowsMax = 1000
	// sweepLeasesMax is how many expired leases one statement ends: each that is watched takes a lock in the lock table of
	// the server.
	sweepLeasesMax = 250
	// sweepRoundsMax is how often the parts are done in one sweep, where there is more to do than one statement does.
	sweepRoundsMax = 100
	// sweepSettleMax is how long the sessions that have ended are settled in one round.
	sweepSettleMax = 500 * time.Millisecond
	// eventsAge and eventsMax are how long, and how many, events of watched locks are kept for subscribers that resume a
	// watch.
	eventsAge = 10 * time.Minute
	eventsMax = 100_000
)

// sweepPart is one part of a sweep: a statement that returns how much it has done, and whether there is more; or the
// sessions.
type sweepPart struct {
	sql  string
	args []any // after the pause
	done *int64
}

// parts are those of a sweep, the first one first; they count into swept.
func (s *Sweeper) parts(swept *Swept) []sweepPart {
	c, uncounted := s.config, new(int64)
	return []sweepPart{
		{"select done, more from fence.sweep_holds($1, $2)", []any{sweepLeasesMax}, &swept.Expired},
		{"select done, more from fence.sweep_leases($1, $2)", []any{sweepLeasesMax}, &swept.Expired},
		{"", nil, &swept.SessionsExpired},
		{"select done, more from fence.sweep_ended($1, $2, $3)", []any{c.LeaseRetention, sweepRowsMax},
			&swept.LeasesForgotten},
		{
			"select done, more from fence.sweep_rejections($1, $2, $3, $4)",
			[]any{c.RejectionAge, c.RejectionsMax, sweepRowsMax},
			&swept.RejectionsForgotten,
		},
		{"select done, more from fence.sweep_gateways($1, $2)", []any{sweepRowsMax}, uncounted},
		{"select done, more from fence.sweep_waiting($1, $2, $3)", []any{eventsAge, sweepRowsMax}, uncounted},
		{"select done, more from fence.sweep_events($1, $2, $3, $4)", []any{eventsAge, eventsMax, sweepRowsMax}, uncounted},
		{"select done, more from fence.sweep_history($1, $2, $3)", []any{c.HistoryRetention, sweepRowsMax},
			&swept.SamplesForgotten},
		{"select done, more from fence.sweep_unused($1, $2)", []any{sweepRowsMax}, uncounted},
	}
}

// Sweep tidies once, until nothing is left to tidy, or for a hundred rounds. It returns what it did, also beside an
// error, which is ErrUnavailable. A part that fails does not keep the others from being done.
func (s *Sweeper) Sweep(ctx context.Context) (Swept, error) { return s.sweepTimed(ctx, 0) }

// sweepTimed is Sweep, without the parts that another gateway does, or did less than the pause ago.
func (s *Sweeper) sweepTimed(ctx context.Context, pause time.Duration) (Swept, error) {
	begun := time.Now()
	swept, err := s.sweep(ctx, pause)
	if err == nil {
		s.took.Add(time.Since(begun))
		s.last.Store(time.Now().UnixMicro())
	}
	return swept, err
}

// sweep does all parts in turn, then again those that have more to do, and each time the first two: what one part has
// left over does not make the events of expired leases late.
func (s *Sweeper) sweep(ctx context.Context, pause time.Duration) (swept Swept, err error) {
	parts := s.parts(&swept)
	more := make([]bool, len(parts))
	for round := range sweepRoundsMax {
		for i, part := range parts {
			if round > 0 && i > 1 && !more[i] {
				continue
			}
			due := pause
			if more[i] {
				due = 0
			}
			var failed error
			more[i], failed = s.sweepPart(ctx, part, due)
			err = errors.Join(err, failed)
		}
		if !slices.Contains(more, true) || ctx.Err() != nil {
			break
		}
	}
	return swept, err
}

// sweepPart does one part once.
func (s *Sweeper) sweepPart(ctx context.Context, part sweepPart, pause time.Duration) (more bool, err error) {
	if part.sql == "" {
		return s.sweepSessions(ctx, pause, part.done)
	}
	var done int64
	if err := s.store.queryRow(ctx, part.sql, append([]any{pause}, part.args...), &done, &more); err != nil {
		return false, fmt.Errorf("%s: %w", statementName(part.sql), err)
	}
	*part.done += done
	return more, nil
}

// sweepSessions ends the sessions that have expired, and with them and with those that were ended, their leases.
func (s *Sweeper) sweepSessions(ctx context.Context, pause time.Duration, ended *int64) (more bool, err error) {
	var expired int64
	var unsettled []uuid.UUID
	err = s.store.queryRow(ctx, "select done, unsettled, more from fence.sweep_sessions($1, $2, $3)",
		[]any{pause, s.config.LeaseRetention, sweepRowsMax}, &expired, &unsettled, &more)
	if err != nil {
		return false, fmt.Errorf("fence.sweep_sessions: %w", err)
	}
	*ended += expired
	left, err := s.store.settleAll(ctx, unsettled, time.Now().Add(sweepSettleMax))
	return more || left, err
}
