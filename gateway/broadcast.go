package gateway

import (
	"context"
	"sync"

	"github.com/fencegate/fencegate/store"
)

// broadcastAhead is how many events a reader may be behind before its stream is ended.
const broadcastAhead = 16

// broadcast tells any number of streams the same events, each of which is made and encoded once. What makes them runs only while somebody
// reads.
type broadcast struct {
	// produce tells events until ctx ends.
	produce func(ctx context.Context, tell func(event []byte))
	// until is when nothing is told any more.
	until context.Context

	mu      sync.Mutex
	readers map[*broadcastReader]struct{}
	stop    context.CancelFunc // of what produces; nil while nobody reads
	running sync.WaitGroup
	last    []byte // nil: nothing yet
}

// broadcastReader is a stream that reads.
type broadcastReader struct {
	events chan []byte // closed when the reader was too slow
}

func newBroadcast(until context.Context, produce func(ctx context.Context, tell func(event []byte))) *broadcast {
	return &broadcast{produce: produce, until: until, readers: map[*broadcastReader]struct{}{}}
}

// read begins to read: with the last event, if there was one since somebody reads.
func (b *broadcast) read() *broadcastReader {
	b.mu.Lock()
	defer b.mu.Unlock()
	reader := &broadcastReader{make(chan []byte, broadcastAhead)}
	if b.last != nil {
		reader.events <- b.last
	}
	b.readers[reader] = struct{}{}
	if b.stop == nil {
		ctx, cancel := context.WithCancel(b.until)
		b.stop = cancel
		b.running.Go(func() { b.produce(ctx, func(event []byte) { b.tell(ctx, event) }) })
	}
	return reader
}

// leave ends the reading, and with that of the last reader what produces.
func (b *broadcast) leave(reader *broadcastReader) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.readers, reader)
	if len(b.readers) == 0 && b.stop != nil {
		b.stop()
		b.stop, b.last = nil, nil
	}
}

// tell gives all readers an event, unless ctx has ended: then what produces it has been replaced, or is not needed.
func (b *broadcast) tell(ctx context.Context, event []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if ctx.Err() != nil {
		return
	}
	b.last = event
	for reader := range b.readers {
		select {
		case reader.events <- event:
		default:
			close(reader.events)
			delete(b.readers, reader)
		}
	}
}

// next waits for an event. It returns ErrSlowReader if the reader was too slow, or why ctx has ended.
func (r *broadcastReader) next(ctx context.Context) ([]byte, error) {
	select {
	case event, ok := <-r.events:
		if !ok {
			return nil, store.ErrSlowReader
		}
		return event, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}
