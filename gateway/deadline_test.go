package gateway

import (
	"context"
	"errors"
	"testing"
	"time"
)

// Contexts of a shared deadline leave at least the time requested, and at most a sixteenth more. They end with their
// parent.
func TestSharedDeadline(t *testing.T) {
	t.Parallel()
	const least = 320 * time.Millisecond
	parent, end := context.WithCancel(t.Context())
	var shared sharedDeadline
	shared.within(parent, least)

	begun := time.Now()
	first, again := shared.context(), shared.context()
	deadline, _ := first.Deadline()
	if deadline.Before(begun.Add(least)) || deadline.After(time.Now().Add(least+least/16)) {
		t.Errorf("the first context has %s, want %s or a little more", deadline.Sub(begun), least)
	}
	if next, _ := again.Deadline(); first != again && !next.After(deadline) {
		t.Error("two contexts taken together are different")
	}
	for time.Since(begun) < 2*least {
		now := time.Now()
		deadline, _ := shared.context().Deadline()
		if deadline.Before(now.Add(least)) {
			t.Fatalf("a context taken %s later has %s, want at least %s", now.Sub(begun), deadline.Sub(now), least)
		}
	}
	if <-first.Done(); !errors.Is(context.Cause(first), context.DeadlineExceeded) {
		t.Errorf("the context ended with %v, want DeadlineExceeded", context.Cause(first))
	}
	last := shared.context()
	end()
	if <-last.Done(); !errors.Is(last.Err(), context.Canceled) {
		t.Errorf("the context ended with %v after its parent, want Canceled", last.Err())
	}
}
