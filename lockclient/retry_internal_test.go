package lockclient

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fencegate/fencegate/gateway/api"
)

func TestPausesAreBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		policy := RetryPolicy{
			Base: time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(t, "base")),
			Max:  time.Duration(rapid.Int64Range(0, int64(24*time.Hour)).Draw(t, "max")),
		}.withDefaults()
		try := rapid.IntRange(1, 1<<30).Draw(t, "try")
		hint := time.Duration(rapid.Int64Range(-int64(time.Hour), int64(48*time.Hour)).Draw(t, "hint"))
		random := rapid.Float64Range(0, 0.999999).Draw(t, "random")

		pause := policy.pause(try, hint, random)
		asked := min(max(hint, 0), policy.Max)
		if pause < asked || pause > asked+policy.Max {
			t.Errorf("%+v: pause %v after try %d, hint %v", policy, pause, try, hint)
		}
		if try < 20 {
			if longest := asked + policy.Base<<(try-1); pause > longest {
				t.Errorf("%+v: pause %v after try %d is over %v", policy, pause, try, longest)
			}
		}
		if more := policy.pause(try, hint, random+(1-random)/2); more < pause {
			t.Errorf("more chance makes a shorter pause: %v, %v", pause, more)
		}
	})
}

func TestPausesGrowToTheMaximum(t *testing.T) {
	policy := RetryPolicy{Base: 100 * time.Millisecond, Max: time.Second}
	for try, want := range map[int]time.Duration{1: 100, 2: 200, 3: 400, 4: 800, 5: 1000, 6: 1000, 63: 1000, 1 << 20: 1000} {
		if got := policy.pause(try, 0, 1); got != want*time.Millisecond {
			t.Errorf("try %d: at most %v, want %d ms", try, got, want)
		}
		if got := policy.pause(try, 0, 0); got != 0 {
			t.Errorf("try %d: at least %v, want 0: full jitter", try, got)
		}
	}
}

func TestHeartbeatsAreEarlyEnough(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ttl := time.Duration(rapid.Int64Range(int64(100*time.Millisecond), int64(24*time.Hour)).Draw(t, "ttl"))
		every := time.Duration(rapid.Int64Range(-1, int64(24*time.Hour)).Draw(t, "every"))
		random := rapid.Float64Range(0, 0.999999).Draw(t, "random")
		config := heartbeatConfig{every: every}

		longest := ttl / 3
		if every > 0 {
			longest = min(longest, every)
		}
		if got := config.interval(ttl, random); got > longest || got < longest*4/5-1 {
			t.Errorf("ttl %v, every %v: interval %v", ttl, every, got)
		}
		if window(ttl) >= ttl || window(ttl) < ttl*98/100 {
			t.Errorf("ttl %v: window %v", ttl, window(ttl))
		}
	})
}

func TestTheLaterClockCounts(t *testing.T) {
	before := dualClock{monotonic: 10 * time.Second, wall: 1000 * time.Second}
	for what, test := range map[string]struct {
		later dualClock
		want  time.Duration
	}{
		"both agree":                     {dualClock{15 * time.Second, 1005 * time.Second}, 5 * time.Second},
		"the system was suspended":       {dualClock{11 * time.Second, 1060 * time.Second}, 60 * time.Second},
		"the wall clock was set back":    {dualClock{15 * time.Second, 100 * time.Second}, 5 * time.Second},
		"the wall clock was set forward": {dualClock{11 * time.Second, 9000 * time.Second}, 8000 * time.Second},
	} {
		if got := test.later.since(before); got != test.want {
			t.Errorf("%s: %v, want %v", what, got, test.want)
		}
	}
}

func TestInsistEndsByItsBounds(t *testing.T) {
	client := &Client{retries: retryReport{logger: slog.New(slog.DiscardHandler)}}
	failed := &Error{Problem: &api.Problem{Code: api.CodeUnavailable, Outcome: api.OutcomeNotApplied}}
	always := func(error) bool { return true }
	quick := RetryPolicy{Attempts: 4, Base: 1, Max: 1}

	tries := 0
	err := client.retry(context.Background(), quick, always, func() error { tries++; return failed })
	if tries != 4 || !errors.Is(err, ErrUnavailable) {
		t.Errorf("%d tries, %v, want 4", tries, err)
	}
	tries = 0
	err = client.retry(context.Background(), RetryPolicy{Attempts: 1000, Base: time.Hour, Max: time.Hour, Within: 1}, always, func() error { tries++; return failed })
	if tries != 1 || err == nil {
		t.Errorf("%d tries, %v, want 1: the next would begin too late", tries, err)
	}
	tries = 0
	ctx, cancel := context.WithCancel(context.Background())
	err = client.retry(ctx, RetryPolicy{Attempts: 1000, Base: time.Hour, Max: time.Hour}, always, func() error { tries++; cancel(); return failed })
	if tries != 1 || !errors.Is(err, ErrUnavailable) {
		t.Errorf("%d tries, %v, want 1: ctx has ended", tries, err)
	}
	tries = 0
	err = client.retry(context.Background(), quick, retryable, func() error { tries++; return ErrLockHeld })
	if tries != 1 || !errors.Is(err, ErrLockHeld) {
		t.Errorf("%d tries, %v, want 1: it is an answer", tries, err)
	}
}

// A refusal after a lost answer settles what became of the first attempt, or does not.
func TestDoubtAfterALostAnswer(t *testing.T) {
	client := &Client{retries: retryReport{logger: slog.New(slog.DiscardHandler)}}
	number := func(n int64) *int64 { return &n }
	stale := func(lastToken, lastSequence int64) api.Problem {
		return api.Problem{
			Code: api.CodeTokenStale, Token: number(34), Sequence: number(2), LastToken: number(lastToken), LastSequence: number(lastSequence),
		}
	}
	for what, test := range map[string]struct {
		problem api.Problem
		doubt   bool
	}{
		"the newest write is an older one of the lease": {stale(34, 1), false},
		"the newest write is of an older lease":         {stale(33, 9), false},
		"the newest write is a newer one of the lease":  {stale(34, 3), true},
		"a newer lease has written":                     {stale(35, 1), true},
		"nothing is told of the fence":                  {api.Problem{Code: api.CodeTokenStale}, true},
		"a precondition":                                {api.Problem{Code: api.CodeVersionMismatch}, false},
		"the lock is held by another":                   {api.Problem{Code: api.CodeLockHeld}, false},
		"not served":                                    {api.Problem{Code: api.CodeUnavailable, Outcome: api.OutcomeNotApplied}, true},
		"not let in":                                    {api.Problem{Code: api.CodeForbidden}, true},
	} {
		lost := &Error{Op: "put", Problem: &api.Problem{Code: api.CodeUnavailable, Outcome: api.OutcomeUnknown}}
		answers := []error{lost, &Error{Op: "put", Problem: &test.problem}}
		tries := 0
		err := client.retry(context.Background(), RetryPolicy{Attempts: 2, Base: 1, Max: 1}, retryable, func() error {
			tries++
			return answers[tries-1]
		})
		if got := errors.Is(err, ErrOutcomeUnknown); got != test.doubt || !errors.Is(err, codeError(test.problem.Code)) || tries != 2 {
			t.Errorf("%s: unknown is %t after %d tries: %v", what, got, tries, err)
		}
		if alone := answers[1]; errors.Is(alone, ErrOutcomeUnknown) {
			t.Errorf("%s: without a lost answer there is no doubt", what)
		}
	}
}
