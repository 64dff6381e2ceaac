package gateway

import (
	"context"
	"testing"

	"github.com/fencegate/fencegate/store"
)

// A broadcast ends readers that are too far behind with ErrSlowReader. Later readers begin with the last event.
func TestBroadcastEndsSlowReaders(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	publishers := make(chan func([]byte), 1)
	b := newBroadcast(ctx, func(ctx context.Context, publish func([]byte)) {
		publishers <- publish
		<-ctx.Done()
	})
	slow, quick := b.read(), b.read()
	publish := <-publishers
	for i := range broadcastAhead + 1 {
		publish([]byte{byte(i)})
		if event, err := quick.next(ctx); err != nil || event[0] != byte(i) {
			t.Fatalf("event %d of the quick reader is %v, %v", i, event, err)
		}
	}
	for i := range broadcastAhead {
		if event, err := slow.next(ctx); err != nil || event[0] != byte(i) {
			t.Fatalf("event %d of the slow reader is %v, %v", i, event, err)
		}
	}
	if _, err := slow.next(ctx); err != store.ErrSlowReader { //nolint:errorlint // it is just this one
		t.Errorf("the slow reader got the error %v, want ErrSlowReader", err)
	}
	late := b.read()
	if event, err := late.next(ctx); err != nil || event[0] != broadcastAhead {
		t.Errorf("the late reader got %v, %v, want the last event", event, err)
	}
	for _, reader := range []*broadcastReader{slow, quick, late} {
		b.leave(reader)
	}
	b.running.Wait()
	publish([]byte("late"))
	if b.last != nil {
		t.Error("a producer that was stopped still publishes")
	}
}
