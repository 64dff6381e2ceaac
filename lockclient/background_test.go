package lockclient_test

import (
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fencegate/fencegate/internal/testenv/await"
	"github.com/fencegate/fencegate/lockclient"
)

// Each background goroutine ends with its lease, session or watch, and all of them with the client.
func TestNoGoroutineIsLeft(t *testing.T) {
	before := goleak.IgnoreCurrent()
	client, lock := shared(t)
	ctx := await.Context(t)
	released, err := client.Acquire(ctx, lock+"/released", lockclient.WithTTL(time.Hour))
	check(t, err)
	session, err := client.NewSession(ctx, lockclient.WithTTL(time.Hour))
	check(t, err)
	watch, err := client.Watch(ctx, lock)
	check(t, err)
	check(t, released.Release(ctx))
	check(t, session.Close(ctx))
	watch.Close()
	if err := await.Nil(func() error { return goleak.Find(append(idleConnections, before)...) }); err != nil {
		t.Errorf("after the end of each: %v", err)
	}

	_, err = client.Acquire(ctx, lock+"/held", lockclient.WithTTL(time.Hour))
	check(t, err)
	_, err = client.NewSession(ctx, lockclient.WithTTL(time.Hour))
	check(t, err)
	_, err = client.Campaign(ctx, lock+"/election", nil, lockclient.WithTTL(time.Hour))
	check(t, err)
	watch, err = client.Watch(ctx, lock)
	check(t, err)
	observed, err := client.Observe(ctx, lock+"/election")
	check(t, err)
	client.Close()
	wantErr(t, "Next of the watch", second(watch.Next(ctx)), lockclient.ErrClosed)
	wantErr(t, "Next of the election's watch", second(observed.Next(ctx)), lockclient.ErrClosed)
	if err := await.Nil(func() error { return goleak.Find(before) }); err != nil {
		t.Errorf("after the client's Close: %v", err)
	}
}
