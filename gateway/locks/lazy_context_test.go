package locks

import (
	"context"
	"errors"
	"testing"
	"time"
)

type lazyKey string

// A lazyContext begins with the first question about its end, and not with one for a value. Then it is the context that
// begin has returned, also for contexts derived from it. One that ends before does not begin.
func TestLazyContext(t *testing.T) {
	t.Parallel()
	errWhy := errors.New("why")
	begins := 0
	var end context.CancelCauseFunc
	newLazy := func() *lazyContext {
		before := context.WithValue(t.Context(), lazyKey("key"), "before")
		return &lazyContext{before: before, begin: func(waiting) (context.Context, context.CancelFunc) {
			begins++
			var ctx context.Context
			ctx, end = context.WithCancelCause(context.WithValue(before, lazyKey("key"), "begun"))
			return ctx, func() { end(nil) }
		}}
	}

	lazy := newLazy()
	if value := context.WithoutCancel(lazy).Value(lazyKey("key")); value != "before" || begins != 0 {
		t.Fatalf("value %v after %d begins, want before and 0", value, begins)
	}
	derived, cancel := context.WithTimeout(lazy, time.Hour)
	defer cancel()
	if value := lazy.Value(lazyKey("key")); value != "begun" || lazy.Err() != nil || begins != 1 {
		t.Fatalf("value %v, error %v after %d begins; want begun, none and 1", value, lazy.Err(), begins)
	}
	end(errWhy)
	if <-derived.Done(); !errors.Is(context.Cause(derived), errWhy) || !errors.Is(context.Cause(lazy), errWhy) {
		t.Errorf("ended with %v and %v, want %v", context.Cause(derived), context.Cause(lazy), errWhy)
	}
	lazy.end()

	lazy = newLazy()
	lazy.end()
	if lazy.Err() == nil || begins != 1 {
		t.Errorf("error %v after %d begins, want a lazyContext that ended first not to begin", lazy.Err(), begins-1)
	}
	lazy = newLazy()
	_ = lazy.Done()
	lazy.end()
	if !errors.Is(lazy.Err(), context.Canceled) {
		t.Errorf("ended with %v, want canceled", lazy.Err())
	}
}
