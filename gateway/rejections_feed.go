package gateway

import (
	"context"
	"time"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/store"
)

const (
	// feedInterval is the time between readings.
	feedInterval = 500 * time.Millisecond
	feedTimeout  = 5 * time.Second
	// feedBehindMax is half a minute.
	feedBehindMax = 64
	// feedPatience is how long readings may fail before the followers are told so.
	feedPatience = 5 * time.Second
	// missedInterval is the least time between two events "missed": in a storm of zombies each makes all followers fetch a list.
	missedInterval = 2 * time.Second
)

// errCutOff is what readers hear that are left when the gateway has ended.
var errCutOff = &store.UnavailableError{Outcome: store.OutcomeNotApplied, Err: errDraining}

// rejectionBatch is what one reading has found, encoded once.
type rejectionBatch struct {
	missed []byte // the event "missed", before all others; nil: nothing is missed
	events []rejectionEvent
}

type rejectionEvent struct {
	rejection *store.Rejection
	text      []byte
}

// rejectionFeed reads changes for the readers of a hub, until it is stopped.
type rejectionFeed struct {
	hub      *rejectionHub
	follower *store.RejectionFollower
	readers  map[*rejectionReader]struct{} // under the lock of the hub, like at
	at       time.Time                     // of the last reading

	begun   chan struct{}   // closed when what changes from then on is told
	stopped context.Context // when nobody follows any more
	stop    context.CancelFunc
	done    chan struct{} // closed when it has ended

	failing     time.Time // since when readings fail; zero: they don't
	missed      bool      // something is missed that was not told so
	missedSince time.Time
	missedTold  time.Time
}

func newRejectionFeed(hub *rejectionHub) *rejectionFeed {
	feed := &rejectionFeed{
		hub: hub, follower: hub.backend.FollowRejections(), readers: map[*rejectionReader]struct{}{},
		begun: make(chan struct{}), done: make(chan struct{}),
	}
	feed.stopped, feed.stop = context.WithCancel(hub.cut)
	return feed
}

func (f *rejectionFeed) run() {
	defer close(f.done)
	ticker := time.NewTicker(f.hub.interval)
	defer ticker.Stop()
	for f.read() {
		select {
		case <-ticker.C:
		case <-f.stopped.Done():
			f.hub.fail(f, errCutOff) // whoever is left
			return
		}
	}
}

// read reads once, and tells the readers. It returns false when the feed has failed.
func (f *rejectionFeed) read() bool {
	// Not cut off when the last reader leaves: a statement that is cut off costs its connection.
	ctx, cancel := context.WithTimeout(f.hub.cut, feedTimeout)
	defer cancel()
	changes, err := f.follower.Next(ctx)
	if err != nil {
		return f.failed(err)
	}
	f.failing = time.Time{}
	if changes.Missed && !f.missed {
		f.missed, f.missedSince = true, changes.Since
	}
	f.hub.tell(f, f.batch(changes), changes.At)
	select {
	case <-f.begun:
	default:
		close(f.begun)
	}
	return true
}

// failed ends the feed when readings fail for long, or from the beginning.
func (f *rejectionFeed) failed(err error) bool {
	if f.failing.IsZero() {
		f.failing = time.Now()
	}
	select {
	case <-f.begun:
		if time.Since(f.failing) < f.hub.patience {
			return true
		}
	default:
	}
	f.hub.fail(f, err)
	return false
}

// batch encodes what is to be told; nil: nothing.
func (f *rejectionFeed) batch(changes store.RejectionChanges) *rejectionBatch {
	batch := &rejectionBatch{}
	if f.missed && (!changes.Missed || time.Since(f.missedTold) >= missedInterval) {
		batch.missed = missedEvent(changes.At, f.missedSince)
		f.missed, f.missedTold = false, time.Now()
	}
	batch.events = rejectionEvents(changes.Changed)
	if batch.missed == nil && len(batch.events) == 0 {
		return nil
	}
	return batch
}

func rejectionEvents(changed []store.Rejection) []rejectionEvent {
	events := make([]rejectionEvent, len(changed))
	for i := range changed {
		rejection := &changed[i]
		events[i] = rejectionEvent{rejection, timedEvent(rejection.ChangedAt, api.EventRejection, rejectionAnswer(rejection))}
	}
	return events
}

func missedEvent(at, since time.Time) []byte {
	return timedEvent(at, api.EventMissed, api.RejectionsMissed{Since: api.Time{Time: since}})
}

// timedEvent makes an event whose id is a time, in microseconds since 1970: who has heard it goes on there.
func timedEvent(at time.Time, kind string, data any) []byte {
	id := at.UnixMicro()
	return encodeEvent(&id, kind, data)
}
