package gateway

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fencegate/fencegate/store"
)

// rejectionHub has the changes of rejections read once for all who follow them here, and only while somebody does.
type rejectionHub struct {
	backend  Rejections
	interval time.Duration   // between readings
	patience time.Duration   // how long they may fail before the followers are told so
	behind   int             // how many readings a follower may be behind; they are shared by all
	cut      context.Context // ends when the work that is still under way is cut off

	mu   sync.Mutex
	feed *rejectionFeed // nil: nobody follows
}

// rejectionReader is one who follows.
type rejectionReader struct {
	hub    *rejectionHub
	feed   *rejectionFeed
	coming chan *rejectionBatch // closed when the reader was ended, see reason
	reason error
	// position is until when all is in coming, in microseconds since 1970.
	position atomic.Int64
}

// join has what changes from now on told to a reader. It returns when that is certain, or store.ErrUnavailable.
func (h *rejectionHub) join(ctx context.Context) (*rejectionReader, error) {
	h.mu.Lock()
	if h.feed == nil {
		h.feed = newRejectionFeed(h)
		go h.feed.run()
	}
	reader := &rejectionReader{hub: h, feed: h.feed, coming: make(chan *rejectionBatch, h.behind)}
	reader.position.Store(h.feed.at.UnixMicro())
	h.feed.readers[reader] = struct{}{}
	h.mu.Unlock()
	select {
	case <-reader.feed.begun:
		return reader, nil
	case <-ctx.Done():
		reader.leave()
		return nil, &store.UnavailableError{Outcome: store.OutcomeNotApplied, Err: fmt.Errorf("read the rejections: %w", ctx.Err())}
	case <-reader.feed.done:
		return nil, reader.reason
	}
}

// leave ends the reader. With the last one it waits for the end of the feed.
func (r *rejectionReader) leave() {
	r.hub.mu.Lock()
	delete(r.feed.readers, r)
	last := len(r.feed.readers) == 0
	if last {
		r.hub.stopLocked(r.feed)
	}
	r.hub.mu.Unlock()
	if last {
		<-r.feed.done
	}
}

// stopLocked has the next reader begin another feed.
func (h *rejectionHub) stopLocked(feed *rejectionFeed) {
	feed.stop()
	if h.feed == feed {
		h.feed = nil
	}
}

// tell has the readers told a batch, nil: nothing, after which all is told that was visible at that time. It never waits for one: a reader
// that does not keep up is ended.
func (h *rejectionHub) tell(feed *rejectionFeed, batch *rejectionBatch, told time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	feed.at = told
	for reader := range feed.readers {
		if batch != nil {
			select {
			case reader.coming <- batch:
			default:
				reader.endLocked(store.ErrSlowReader)
				continue
			}
		}
		reader.position.Store(told.UnixMicro())
	}
}

// fail ends all readers of a feed, and the feed.
func (h *rejectionHub) fail(feed *rejectionFeed, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for reader := range feed.readers {
		reader.endLocked(err)
	}
	h.stopLocked(feed)
}

func (r *rejectionReader) endLocked(reason error) {
	delete(r.feed.readers, r)
	r.reason = reason
	close(r.coming)
}
