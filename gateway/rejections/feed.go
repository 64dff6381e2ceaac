package rejections

import (
	"context"
	"time"

	"github.com/fencegate/fencegate/gateway/endpoint"
	"github.com/fencegate/fencegate/lockclient/api"
	"github.com/fencegate/fencegate/store"
)

const (
	// feedInterval is the time between readings.
	feedInterval = 500 * time.Millisecond
	feedTimeout  = 5 * time.Second
	// feedBehindMax is half a minute of readings.
	feedBehindMax = 64
	// feedPatience is how long readings may fail before the streams are ended.
	feedPatience = 5 * time.Second
	// missedInterval is the least time between two events "missed": each makes every client fetch a list.
	missedInterval = 2 * time.Second
)

// rejectionBatch holds the changes that one reading found. It is encoded once, but for the ids.
type rejectionBatch struct {
	after  time.Time // everything visible at that time was in the batches before
	missed []byte    // the event "missed", before all others; nil: nothing was missed
	events []rejectionEvent
}

type rejectionEvent struct {
	rejection *store.Rejection
	text      []byte // without an id
}

// Feed reads the changes of rejections once for all streams of this gateway.
type Feed struct {
	endpoint.Broadcast[*rejectionBatch]

	service  Service
	Interval time.Duration // between readings
	Patience time.Duration // how long they may fail
}

func newFeed(until context.Context, service Service) *Feed {
	f := &Feed{service: service, Interval: feedInterval, Patience: feedPatience}
	f.Broadcast = endpoint.Broadcast[*rejectionBatch]{Until: until, BehindMax: feedBehindMax, Produce: f.run}
	return f
}

// run reads until ctx ends, or until readings fail for long.
func (f *Feed) run(ctx context.Context, to *endpoint.Production[*rejectionBatch]) error {
	reader := feedReader{feed: f, follower: f.service.FollowRejections(), to: to}
	ticker := time.NewTicker(f.Interval)
	defer ticker.Stop()
	for {
		if err := reader.read(); err != nil {
			return err
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// feedReader is one run of a feed.
type feedReader struct {
	feed     *Feed
	follower store.RejectionFollower
	to       *endpoint.Production[*rejectionBatch]

	begun bool
	after time.Time // everything visible at that time was published, or reported as missed

	failing     time.Time // since when readings fail; zero: they don't
	missed      bool      // something was missed and not reported yet
	missedSince time.Time
	reportedAt  time.Time // the last event "missed"
}

// read reads once and publishes the changes. It returns an error when the feed can't go on.
func (r *feedReader) read() error {
	// The last subscriber may leave meanwhile. Cutting the statement off would cost its connection.
	ctx, cancel := context.WithTimeout(r.feed.Until, feedTimeout)
	defer cancel()
	changes, err := r.follower.Next(ctx)
	if err != nil {
		return r.failed(err)
	}
	r.failing = time.Time{}
	if changes.Missed && !r.missed {
		r.missed, r.missedSince = true, changes.Since
	}
	if batch := r.batch(changes); batch.missed != nil || len(batch.events) > 0 {
		r.to.Publish(batch)
	}
	if !r.missed { // otherwise no client may resume from here before it is reported
		r.after = changes.At
	}
	r.begun = true
	r.to.Advance(r.after.UnixMicro())
	return nil
}

// failed returns the error if readings have failed for long, or from the beginning.
func (r *feedReader) failed(err error) error {
	if r.failing.IsZero() {
		r.failing = time.Now()
	}
	if r.begun && time.Since(r.failing) < r.feed.Patience {
		return nil
	}
	return err
}

func (r *feedReader) batch(changes store.RejectionChanges) *rejectionBatch {
	batch := &rejectionBatch{after: r.after, events: rejectionEvents(changes.Changed)}
	if r.missed && (!changes.Missed || time.Since(r.reportedAt) >= missedInterval) {
		batch.missed = missedEvent(r.missedSince)
		r.missed, r.reportedAt = false, time.Now()
	}
	return batch
}

func rejectionEvents(changed []store.Rejection) []rejectionEvent {
	events := make([]rejectionEvent, len(changed))
	for i := range changed {
		text := endpoint.EncodeEvent(nil, api.EventRejection, rejectionAnswer(changed[i]))
		events[i] = rejectionEvent{&changed[i], text}
	}
	return events
}

func missedEvent(since time.Time) []byte {
	return endpoint.EncodeEvent(nil, api.EventMissed, api.RejectionsMissed{Since: api.Time{Time: since}})
}
