package gateway

import (
	"context"
	"time"

	"github.com/fencegate/fencegate/store"
)

// historyFor is how long points are good enough for the next who asks for as many.
const historyFor = time.Second

// history reads points, one reader at a time, and keeps them for a moment: however many look at a day of all gateways, which is much to read,
// the database reads it once a second at most.
type history struct {
	read func(context.Context, time.Duration) ([]store.Point, error)
	turn chan struct{} // holds one while somebody reads; it guards what is kept
	kept map[time.Duration]keptPoints
}

type keptPoints struct {
	points []store.Point
	until  time.Time
}

func newHistory(read func(context.Context, time.Duration) ([]store.Point, error)) *history {
	return &history{read: read, turn: make(chan struct{}, 1), kept: map[time.Duration]keptPoints{}}
}

// points returns those that are kept, or reads them. It returns ErrUnavailable, also if ctx ends before its turn.
func (h *history) points(ctx context.Context, length time.Duration) ([]store.Point, error) {
	select {
	case h.turn <- struct{}{}:
		defer func() { <-h.turn }()
	case <-ctx.Done():
		return nil, &store.UnavailableError{Outcome: store.OutcomeNotApplied, Err: ctx.Err()}
	}
	if points := h.recent(length); points != nil {
		return points, nil
	}
	points, err := h.read(ctx, length)
	if err == nil {
		h.kept[length] = keptPoints{points, time.Now().Add(historyFor)}
	}
	return points, err
}

// recent are those that are kept; nil: none.
func (h *history) recent(length time.Duration) []store.Point {
	now := time.Now()
	for other, kept := range h.kept { // few: reading takes its time
		if kept.until.Before(now) {
			delete(h.kept, other)
		}
	}
	return h.kept[length].points
}
