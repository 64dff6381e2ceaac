package rejections

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/fencegate/fencegate/gateway/endpoint"
	"github.com/fencegate/fencegate/internal/access"
	"github.com/fencegate/fencegate/store"
)

// streamFilters are the parameters that select the rejections of a stream.
var streamFilters = []string{"resource", "prefix", "key", "code", "kind", "owner_id", "principal"}

// streamRejections streams new and changed rejections of all gateways.
func (e *Endpoints) streamRejections(w *endpoint.Answer, r *http.Request) error {
	after, p := endpoint.LastEventID(r, streamFilters...)
	filter := rejectionFilter(&p)
	filter.Within = w.Principal.Within(access.Observe)
	p.Fail(filter.Check())
	if p.Err != nil {
		return p.Err
	}
	return e.StreamEvents(w, r, func() (endpoint.EventSource, error) { return e.followRejections(r, filter, after) })
}

// followRejections subscribes, and then reads what a client that resumes has missed: nothing is lost between the two.
func (e *Endpoints) followRejections(
	r *http.Request, filter store.RejectionFilter, after *int64,
) (*selectedRejections, error) {
	ctx := e.Work(r)
	s := &selectedRejections{filter: filter, from: e.Feed.Subscribe(), text: make([]byte, 0, streamWriteBytes)}
	err := s.from.AwaitBegin(ctx)
	if err == nil && after != nil {
		s.batch, err = e.missedRejections(ctx, filter, time.UnixMicro(min(*after, eventMicrosMax)))
	}
	if err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// missedRejections returns the changes after the last event that a client has seen.
func (e *Endpoints) missedRejections(
	ctx context.Context, filter store.RejectionFilter, after time.Time,
) (*rejectionBatch, error) {
	changes, err := e.service.RejectionsSince(ctx, filter, after)
	batch := &rejectionBatch{after: after, events: rejectionEvents(changes.Changed)}
	if changes.Missed {
		batch.after, batch.missed = changes.At, missedEvent(changes.Since)
	}
	return batch, err
}

// streamWriteBytes is about how much is written at a time.
const streamWriteBytes = 32 << 10

// selectedRejections writes the rejections that a filter selects to one client.
type selectedRejections struct {
	filter store.RejectionFilter
	from   *endpoint.Subscriber[*rejectionBatch]
	batch  *rejectionBatch // to be sent; nil: none
	text   []byte

	// id is the greatest changed_at that was sent, in microseconds since 1970, or the time before which everything was.
	// It never falls: a row that becomes visible late does not send a client back that resumes after it.
	id int64
}

// Begin sends what the client has missed. Without that it sends the position, so that the client can resume from there
// even if no event comes.
func (s *selectedRejections) Begin(stream *endpoint.EventStream) error {
	if s.batch != nil && s.selects(s.batch) {
		return s.write(stream)
	}
	if s.batch != nil {
		s.id = s.batch.after.UnixMicro()
	}
	return s.Idle(stream)
}

// Wait returns when there is a batch of which something is selected.
func (s *selectedRejections) Wait(ctx context.Context) (err error) {
	for err == nil {
		if s.batch, err = s.from.Next(ctx); err == nil && s.selects(s.batch) {
			return nil
		}
	}
	return err
}

// Idle sends the position, unless there is an event to send.
func (s *selectedRejections) Idle(stream *endpoint.EventStream) error {
	batch, waits, position, err := s.from.Pending()
	switch {
	case err != nil:
		return err
	case !waits:
		s.id = max(s.id, position)
	case s.selects(batch):
		s.batch = batch
		return s.write(stream)
	default:
		s.id = max(s.id, batch.after.UnixMicro())
	}
	return stream.Position(s.id)
}

func (s *selectedRejections) selects(batch *rejectionBatch) bool {
	return batch.missed != nil || slices.ContainsFunc(batch.events, func(event rejectionEvent) bool {
		return s.filter.Matches(event.rejection)
	})
}

func (s *selectedRejections) Send(_ context.Context, stream *endpoint.EventStream) error {
	return s.write(stream)
}

// write writes what is selected of the batch.
func (s *selectedRejections) write(stream *endpoint.EventStream) error {
	s.text = s.text[:0]
	s.id = max(s.id, s.batch.after.UnixMicro())
	if s.batch.missed != nil {
		s.add(s.batch.missed)
	}
	for _, event := range s.batch.events {
		if !s.filter.Matches(event.rejection) {
			continue
		}
		if len(s.text) > 0 && len(s.text)+len(event.text) > streamWriteBytes {
			if err := stream.Write(s.text); err != nil {
				return err
			}
			s.text = s.text[:0]
		}
		s.id = max(s.id, event.rejection.ChangedAt.UnixMicro())
		s.add(event.text)
	}
	s.batch = nil
	return stream.Write(s.text)
}

func (s *selectedRejections) add(event []byte) {
	s.text = fmt.Appendf(s.text, "id: %d\n", s.id)
	s.text = append(s.text, event...)
}

func (s *selectedRejections) Close() { s.from.Leave() }
