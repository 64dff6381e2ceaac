package gateway

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/store"
)

// streamOverview streams how all is, every SampleInterval. There is nothing to resume: what was before is among the points of an overview.
func (g *Gateway) streamOverview(w http.ResponseWriter, r *http.Request) error {
	if _, err := lastEventID(r); err != nil {
		return err
	}
	release, err := g.openStream()
	if err != nil {
		return err
	}
	defer release()
	ctx, cancel := g.attended(r)
	defer cancel()
	reader := g.overviews.read()
	defer g.overviews.leave(reader)

	stream, err := g.beginEvents(w)
	for err == nil {
		err = g.passOn(ctx, reader, stream)
	}
	if reason := g.endReason(ctx, err); reason != "" {
		_ = stream.send(nil, api.EventEnd, api.WatchEnd{Reason: reason}) // who does not hear it sees that the stream has ended
	}
	return nil
}

// passOn passes the next event on, or shows, when there is none for a while, that the stream lives.
func (g *Gateway) passOn(ctx context.Context, reader *broadcastReader, stream *eventStream) error {
	silent, cancel := context.WithTimeout(ctx, g.config.KeepAlive)
	defer cancel()
	event, err := reader.next(silent)
	switch {
	case err == nil:
		return stream.write(event)
	case errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil:
		return stream.comment()
	}
	return err
}

// tellOverviews tells how all is when an interval of samples is over, by the database's clock, until ctx ends.
func (g *Gateway) tellOverviews(ctx context.Context, tell func([]byte)) {
	for ctx.Err() == nil {
		event, at := g.overviewEvent(context.WithoutCancel(ctx))
		id := at.UnixMilli()
		tell(encodeEvent(&id, api.EventOverview, event))
		select {
		case <-time.After(untilIntervalEnds(at)):
		case <-ctx.Done():
		}
	}
}

// untilIntervalEnds is the time to the end of the interval in which at is, and a little more, in which the last samples are committed.
func untilIntervalEnds(at time.Time) time.Duration {
	const interval, little = store.SampleInterval, 50 * time.Millisecond
	return interval + little - time.Duration(at.UnixNano())%interval
}

func (g *Gateway) overviewEvent(ctx context.Context) (api.OverviewEvent, time.Time) {
	known, failed := g.lookOver(ctx)
	event := api.OverviewEvent{At: api.Time{Time: known.at()}}
	if failed == nil {
		asking, cancel := context.WithTimeout(ctx, overviewTimeout)
		defer cancel()
		var last store.Point
		if last, failed = g.backend.LastPoint(asking); failed == nil {
			point := pointAnswer(&last)
			event.Point = &point
		}
	}
	event.OverviewState = g.overviewState(known, failed)
	return event, known.at()
}
