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

// rejectionBatch is what one reading has found, encoded once, but for the ids.
type rejectionBatch struct {
	told   time.Time // what was visible then was told before
	missed []byte    // the event "missed", before all others; nil: nothing is missed
	events []rejectionEvent
}

type rejectionEvent struct {
	rejection *store.Rejection
	text      []byte // without an id
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

	told time.Time // all that was visible then is told, or as missed

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
	batch := f.batch(changes)
	if !f.missed { // otherwise nobody goes on from here before it is told
		f.told = changes.At
	}
	f.hub.tell(f, batch, f.told)
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
		batch.missed = missedEvent(f.missedSince)
		f.missed, f.missedTold = false, time.Now()
	}
	batch.events = rejectionEvents(changes.Changed)
	batch.told = f.told
	if batch.missed == nil && len(batch.events) == 0 {
		return nil
	}
	return batch
}

func rejectionEvents(changed []store.Rejection) []rejectionEvent {
	events := make([]rejectionEvent, len(changed))
	for i := range changed {
		events[i] = rejectionEvent{&changed[i], encodeEvent(nil, api.EventRejection, rejectionAnswer(&changed[i]))}
	}
	return events
}

func missedEvent(since time.Time) []byte {
	return encodeEvent(nil, api.EventMissed, api.RejectionsMissed{Since: api.Time{Time: since}})
}
