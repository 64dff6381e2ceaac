package endpoint

import (
	"context"
	"testing"

	"github.com/fencegate/fencegate/store"
)

// A subscriber that does not keep up is ended, and the others go on.
func TestBroadcastEndsSlowSubscribers(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	productions := make(chan *Production[int], 1)
	const behindMax = 16
	b := &Broadcast[int]{Until: ctx, BehindMax: behindMax, Replay: true,
		Produce: func(ctx context.Context, to *Production[int]) error {
			productions <- to
			<-ctx.Done()
			return ctx.Err()
		}}
	slow, quick := b.Subscribe(), b.Subscribe()
	to := <-productions
	for i := range behindMax + 1 {
		to.Publish(i)
		if event, err := quick.Next(ctx); err != nil || event != i {
			t.Fatalf("event %d is %v, %v", i, event, err)
		}
	}
	for i := range behindMax {
		if event, err := slow.Next(ctx); err != nil || event != i {
			t.Fatalf("event %d of the slow subscriber is %v, %v", i, event, err)
		}
	}
	if _, err := slow.Next(ctx); err != store.ErrSlowReader { //nolint:errorlint // it is just this one
		t.Errorf("the slow subscriber ended with %v, want %v", err, store.ErrSlowReader)
	}
	late := b.Subscribe()
	if event, err := late.Next(ctx); err != nil || event != behindMax {
		t.Errorf("a late subscriber gets %v, %v, want the last event, %d", event, err, behindMax)
	}
	for _, s := range []*Subscriber[int]{slow, quick, late} {
		s.Leave()
	}
	b.running.Wait()
	to.Publish(99)
	again := b.Subscribe()
	defer again.Leave()
	if _, waits, _, err := again.Pending(); waits || err != nil {
		t.Errorf("a subscriber of the next run gets an event of the run before; error %v", err)
	}
}
