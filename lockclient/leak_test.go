package lockclient_test

import (
	"errors"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fencegate/fencegate/lockclient"
)

// What runs for hours ends with what it belongs to, and all of it with the client.
func TestNoGoroutineIsLeft(t *testing.T) {
	before := goleak.IgnoreCurrent()
	client, lock := shared(t)
	ctx := patient(t)
	released, err := client.Acquire(ctx, lock+"/released", lockclient.WithTTL(time.Hour), lockclient.WithHeartbeat())
	check(t, err)
	session, err := client.NewSession(ctx, lockclient.WithTTL(time.Hour))
	check(t, err)
	watch, err := client.Watch(ctx, lock)
	check(t, err)
	check(t, released.Release(ctx))
	check(t, session.Close(ctx))
	watch.Close()
	// Connections that are kept for the next call are the transport's.
	if err := goleak.Find(before, goleak.IgnoreAnyFunction("net/http.(*persistConn).readLoop"), goleak.IgnoreAnyFunction("net/http.(*persistConn).writeLoop")); err != nil {
		t.Errorf("each was ended: %v", err)
	}

	_, err = client.Acquire(ctx, lock+"/held", lockclient.WithTTL(time.Hour), lockclient.WithHeartbeat())
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
	if _, err := watch.Next(ctx); !errors.Is(err, lockclient.ErrClosed) {
		t.Errorf("watch: %v", err)
	}
	if _, err := observed.Next(ctx); !errors.Is(err, lockclient.ErrClosed) {
		t.Errorf("observe: %v", err)
	}
	if err := goleak.Find(before); err != nil {
		t.Errorf("the client was closed: %v", err)
	}
}
