package endpoint

import (
	"math"
	"testing"
	"time"
)

// recommended_retry_ms is one average hold per waiter ahead, between a minimum and a maximum.
func TestRetryAfter(t *testing.T) {
	for _, want := range []struct {
		remaining   time.Duration
		queueLength int
		retry       time.Duration
	}{
		{-time.Second, 0, 50 * time.Millisecond},
		{0, 0, 50 * time.Millisecond},
		{0, 3, 200 * time.Millisecond},
		{400 * time.Millisecond, 0, 400 * time.Millisecond},
		{400 * time.Millisecond, 2, 1200 * time.Millisecond},
		{time.Hour, 0, time.Second},
		{time.Hour, 9, 10 * time.Second},
		{time.Hour, 29, 30 * time.Second},
		{time.Hour, 30, 30 * time.Second},
		{0, 598, 29950 * time.Millisecond},
		{0, 599, 30 * time.Second},
		{0, 600, 30 * time.Second},
		{time.Hour, math.MaxInt, 30 * time.Second},
	} {
		if got := retryAfter(want.remaining, want.queueLength); got != want.retry {
			t.Errorf("with %s left and %d waiters: %s, want %s", want.remaining, want.queueLength, got, want.retry)
		}
	}
}

// jittered adds up to a quarter to a wait, so that clients do not retry at the same time.
func TestJittered(t *testing.T) {
	for _, wait := range []time.Duration{0, 1, 50 * time.Millisecond, 30 * time.Second} {
		seen := map[time.Duration]bool{}
		for range 100 {
			got := Jittered(wait)
			if seen[got] = true; got < wait || got > wait+wait/4 {
				t.Fatalf("%s became %s, want it or up to a quarter more", wait, got)
			}
		}
		if len(seen) < 2 && wait > time.Millisecond {
			t.Errorf("%s was never changed", wait)
		}
	}
}
