package gateway

import (
	"context"
	"time"

	"github.com/fencegate/fencegate/store"
)

// historyFor is how long points answer further requests for the same range.
const historyFor = time.Second

// history reads points and keeps them for a moment, so that the database reads a range at most once a second, however
// many dashboards show it: the points of a day of all gateways are many rows.
type history struct {
	read func(context.Context, time.Duration) ([]store.Point, error)
	turn chan struct{} // a mutex that can be waited for with a context; it guards kept
	kept map[time.Duration]keptPoints
}

type keptPoints struct {
	points []store.Point
	until  time.Time
}

func newHistory(read func(context.Context, time.Duration) ([]store.Point, error)) *history {
	return &history{read: read, turn: make(chan struct{}, 1), kept: map[time.Duration]keptPoints{}}
}

// points returns kept points, or reads them. It returns ErrUnavailable, also if ctx ends before its turn.
func (h *history) points(ctx context.Context, length time.Duration) ([]store.Point, error) {
	select {
	case h.turn <- struct{}{}:
		defer func() { <-h.turn }()
	case <-ctx.Done():
		return nil, &store.UnavailableError{Outcome: store.OutcomeNotApplied, Err: ctx.Err()}
	}
	now := time.Now()
	for other, kept := range h.kept { // few, since reading takes its time
		if kept.until.Before(now) {
			delete(h.kept, other)
		}
	}
	if kept := h.kept[length].points; kept != nil {
		return kept, nil
	}
	points, err := h.read(ctx, length)
	if err == nil {
		h.kept[length] = keptPoints{points, time.Now().Add(historyFor)}
	}
	return points, err
}
