// Package await is how tests wait: for something named, with one generous limit.
package await

import (
	"context"
	"testing"
	"time"
)

// Limit bounds every wait of a test. A wait should need a hundredth of it; the rest is for a machine that is busy.
const Limit = 2 * time.Minute

// Pauses between two polls.
const (
	firstPause = time.Millisecond
	longPause  = 20 * time.Millisecond
)

// True polls holds until it returns true. It fails the test after Limit, with what the test waited for.
func True(t testing.TB, what string, holds func() bool) {
	t.Helper()
	pause := firstPause
	for deadline := time.Now().Add(Limit); !holds(); pause = min(2*pause, longPause) {
		if time.Now().After(deadline) {
			t.Fatalf("waited for %s in vain: %s", Limit, what)
		}
		time.Sleep(pause)
	}
}

// Nil polls check until it returns nil. It returns the last error after Limit. A goleak.Find waits for less than half a
// second, which is too little for a pool of connections to end.
func Nil(check func() error) error {
	for deadline := time.Now().Add(Limit); ; time.Sleep(longPause) {
		if err := check(); err == nil || time.Now().After(deadline) {
			return err
		}
	}
}

// Receive returns the next value of a channel, or the zero value once it is closed. It fails the test after Limit, with
// what the test waited for.
func Receive[T any](t testing.TB, what string, from <-chan T) T {
	t.Helper()
	return ReceiveWithin(t, Limit, what, from)
}

// ReceiveWithin is Receive with a limit of its own, for an event that a defect makes impossible.
func ReceiveWithin[T any](t testing.TB, limit time.Duration, what string, from <-chan T) T {
	t.Helper()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case value := <-from:
		return value
	case <-timer.C:
		t.Fatalf("waited for %s in vain: %s", limit, what)
		panic("unreachable")
	}
}

// Context returns a context that ends after Limit, or with the test. It suits calls that must not block for ever.
func Context(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Limit)
	t.Cleanup(cancel)
	return ctx
}
