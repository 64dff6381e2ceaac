package gateway

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/store"
)

// streamFilters are the parameters that select what a stream of rejections tells.
var streamFilters = []string{"resource", "prefix", "code", "owner_id"}

// streamRejections tells rejections as they come and change, at all gateways.
func (g *Gateway) streamRejections(w http.ResponseWriter, r *http.Request) error {
	stopped, err := lastEventID(r, streamFilters...)
	if err != nil {
		return err
	}
	filter, err := rejectionFilter(r.URL.Query())
	if err == nil {
		err = filter.Check()
	}
	if err != nil {
		return err
	}
	release, err := g.openStream()
	if err != nil {
		return err
	}
	defer release()
	reader, behind, err := g.followRejections(r, filter, stopped)
	if err != nil {
		return err
	}
	defer reader.leave()
	ctx, cancel := g.attended(r)
	defer cancel()

	stream, err := g.beginEvents(w)
	teller := rejectionTeller{stream: stream, filter: filter, text: make([]byte, 0, tellerBytes)}
	if err == nil {
		err = teller.begin(reader, behind)
	}
	for err == nil {
		err = teller.next(ctx, reader, g.config.KeepAlive)
	}
	if reason := g.endReason(ctx, err); reason != "" {
		_ = stream.send(nil, api.EventEnd, api.WatchEnd{Reason: reason}) // who does not hear it sees that the stream has ended
	}
	return nil
}

// followRejections joins those who follow, and then reads what a reader that comes back has missed: between the two nothing is lost.
func (g *Gateway) followRejections(r *http.Request, filter store.RejectionFilter, stopped *int64) (*rejectionReader, *rejectionBatch, error) {
	ctx, cancel := g.work(r)
	defer cancel()
	reader, err := g.rejected.join(ctx)
	if err != nil || stopped == nil {
		return reader, nil, err
	}
	told := time.UnixMicro(min(*stopped, eventMicrosMax))
	changes, err := g.backend.RejectionsSince(ctx, filter, told)
	if err != nil {
		reader.leave()
		return nil, nil, err
	}
	behind := &rejectionBatch{told: told, events: rejectionEvents(changes.Changed)}
	if changes.Missed {
		behind.told, behind.missed = changes.At, missedEvent(changes.Since)
	}
	return reader, behind, nil
}

// tellerBytes is how much is written at a time, as a rule.
const tellerBytes = 32 << 10

// rejectionTeller writes what a filter selects to one client.
type rejectionTeller struct {
	stream *eventStream
	filter store.RejectionFilter
	text   []byte
	// id is the last that was told, the greatest changed_at in microseconds since 1970, or until when all was told before. It never falls:
	// what became visible late does not send back whoever breaks off after it. What is not told then is not visible yet.
	id int64
}

// begin tells a reader what it has missed, or where it begins, so that it can go on from there even if nothing comes.
func (t *rejectionTeller) begin(reader *rejectionReader, behind *rejectionBatch) error {
	if behind != nil {
		if written, err := t.tell(behind); written || err != nil {
			return err
		}
	}
	return t.position(reader.position.Load())
}

// next waits for something to tell. A reader to whom there is nothing to tell hears until when that is so.
func (t *rejectionTeller) next(ctx context.Context, reader *rejectionReader, keepAlive time.Duration) error {
	timer := time.NewTimer(keepAlive)
	defer timer.Stop()
	for {
		select {
		case batch, ok := <-reader.coming:
			if !ok {
				return reader.reason
			}
			if written, err := t.tell(batch); written || err != nil {
				return err
			}
		case <-timer.C:
			// In this order: what the position says has been put into coming before it was said.
			if position := reader.position.Load(); len(reader.coming) == 0 {
				return t.position(position)
			}
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// tell writes what is selected of a batch; written says whether that is anything.
func (t *rejectionTeller) tell(batch *rejectionBatch) (written bool, err error) {
	t.text = t.text[:0]
	t.id = max(t.id, batch.told.UnixMicro())
	if batch.missed != nil {
		t.add(batch.missed)
	}
	for _, event := range batch.events {
		if !t.filter.Matches(event.rejection) {
			continue
		}
		if len(t.text) > 0 && len(t.text)+len(event.text) > tellerBytes {
			if err := t.stream.write(t.text); err != nil {
				return true, err
			}
			t.text, written = t.text[:0], true
		}
		t.id = max(t.id, event.rejection.ChangedAt.UnixMicro())
		t.add(event.text)
	}
	if len(t.text) == 0 {
		return written, nil
	}
	return true, t.stream.write(t.text)
}

func (t *rejectionTeller) add(event []byte) {
	t.text = fmt.Appendf(t.text, "id: %d\n", t.id)
	t.text = append(t.text, event...)
}

// position tells until when all is told.
func (t *rejectionTeller) position(id int64) error {
	t.id = max(t.id, id)
	return t.stream.position(t.id)
}
