package gateway

import (
	"context"
	"errors"
	"testing"
	"time"
)

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
		t.Errorf("of %s there are %s left", least, deadline.Sub(begun))
	}
	if next, _ := again.Deadline(); first != again && !next.After(deadline) {
		t.Error("two that begin together have contexts of their own")
	}
	// Whoever begins at any time has at least as much as was asked for, until the parent ends.
	for time.Since(begun) < 2*least {
		now := time.Now()
		deadline, _ := shared.context().Deadline()
		if deadline.Before(now.Add(least)) {
			t.Fatalf("one that begins %s later has only %s", now.Sub(begun), deadline.Sub(now))
		}
	}
	if <-first.Done(); !errors.Is(context.Cause(first), context.DeadlineExceeded) {
		t.Errorf("it ended with %v", context.Cause(first))
	}
	last := shared.context()
	end()
	if <-last.Done(); !errors.Is(last.Err(), context.Canceled) {
		t.Errorf("with its parent it ended with %v", last.Err())
	}
}
