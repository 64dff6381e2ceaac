package gateway

import (
	"context"
	"testing"

	"github.com/fencegate/fencegate/store"
)

// A subscriber that does not keep up is ended, and the others go on.
func TestBroadcastEndsSlowSubscribers(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	productions := make(chan *production[int], 1)
	const behindMax = 16
	b := &broadcast[int]{until: ctx, behindMax: behindMax, replay: true,
		produce: func(ctx context.Context, to *production[int]) error {
			productions <- to
			<-ctx.Done()
			return ctx.Err()
		}}
	slow, quick := b.subscribe(), b.subscribe()
	to := <-productions
	for i := range behindMax + 1 {
		to.publish(i)
		if event, err := quick.next(ctx); err != nil || event != i {
			t.Fatalf("event %d is %v, %v", i, event, err)
		}
	}
	for i := range behindMax {
		if event, err := slow.next(ctx); err != nil || event != i {
			t.Fatalf("event %d of the slow subscriber is %v, %v", i, event, err)
		}
	}
	if _, err := slow.next(ctx); err != store.ErrSlowReader { //nolint:errorlint // it is just this one
		t.Errorf("the slow subscriber ended with %v, want %v", err, store.ErrSlowReader)
	}
	late := b.subscribe()
	if event, err := late.next(ctx); err != nil || event != behindMax {
		t.Errorf("a late subscriber gets %v, %v, want the last event, %d", event, err, behindMax)
	}
	for _, s := range []*subscriber[int]{slow, quick, late} {
		s.leave()
	}
	b.running.Wait()
	to.publish(99)
	again := b.subscribe()
	defer again.leave()
	if _, waits, _, err := again.pending(); waits || err != nil {
		t.Errorf("a subscriber of the next run gets an event of the run before; error %v", err)
	}
}
