package lockclient

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/fencegate/fencegate/lockclient/api"
)

// drawn is how many random arguments a property is checked with.
const drawn = 10_000

// draw returns a number from low to high: a bound, or one of any magnitude above low.
func draw[T ~int | ~int64](low, high T) T {
	switch rand.IntN(8) {
	case 0:
		return low
	case 1:
		return high
	}
	return low + T(rand.Int64N(int64(high-low)+1)>>rand.IntN(63))
}

func TestPauseIsBounded(t *testing.T) {
	for range drawn {
		policy := RetryPolicy{Base: draw(0, time.Hour), Max: draw(0, 24*time.Hour)}.withDefaults()
		try := draw(1, 1<<30)
		hint := draw(-time.Hour, 48*time.Hour)
		random := float64(draw(0, 999_999)) / 1e6

		pause := policy.pause(try, hint, random)
		hinted := min(max(hint, 0), policy.Max)
		if pause < hinted || pause > hinted+policy.Max {
			t.Fatalf("%+v: pause %v after try %d, hint %v", policy, pause, try, hint)
		}
		if try < 20 {
			if longest := hinted + policy.Base<<(try-1); pause > longest {
				t.Fatalf("%+v: pause %v after try %d is over %v", policy, pause, try, longest)
			}
		}
		if more := policy.pause(try, hint, random+(1-random)/2); more < pause {
			t.Fatalf("a greater random number makes a shorter pause: %v, %v", pause, more)
		}
	}
}

func TestPauseGrows(t *testing.T) {
	policy := RetryPolicy{Base: 100 * time.Millisecond, Max: time.Second}
	for try, want := range map[int]time.Duration{
		1: 100, 2: 200, 3: 400, 4: 800, 5: 1000, 6: 1000, 63: 1000, 1 << 20: 1000,
	} {
		if got := policy.pause(try, 0, 1); got != want*time.Millisecond {
			t.Errorf("the pause after try %d is at most %v, expected %d ms", try, got, want)
		}
		if got := policy.pause(try, 0, 0); got != 0 {
			t.Errorf("the pause after try %d is at least %v, expected 0: full jitter", try, got)
		}
	}
}

func TestHeartbeatInterval(t *testing.T) {
	for range drawn {
		ttl := draw(100*time.Millisecond, 24*time.Hour)
		every := draw(-1, 24*time.Hour)
		random := float64(draw(0, 999_999)) / 1e6
		config := heartbeatConfig{every: every}

		longest := ttl / 3
		if every > 0 {
			longest = min(longest, every)
		}
		if got := config.interval(ttl, random); got > longest || got < longest*4/5-1 {
			t.Fatalf("ttl %v, every %v: interval %v", ttl, every, got)
		}
		if window(ttl) >= ttl || window(ttl) < ttl*98/100 {
			t.Fatalf("ttl %v: window %v", ttl, window(ttl))
		}
	}
}

func TestDualClock(t *testing.T) {
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
			t.Errorf("%s: %v since then, expected %v", what, got, test.want)
		}
	}
}

func TestRetryEnds(t *testing.T) {
	failed := &Error{Problem: &api.Problem{Code: api.CodeUnavailable, Retryable: true, Outcome: api.OutcomeNotApplied}}
	always := func(error) bool { return true }
	slow := RetryPolicy{Attempts: 1000, Base: time.Hour, Max: time.Hour}
	late := slow
	late.Within = 1
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for what, test := range map[string]struct {
		ctx    context.Context
		policy RetryPolicy
		again  func(error) bool
		send   func() error
		tries  int
		want   error
	}{
		"the attempts": {t.Context(), RetryPolicy{Attempts: 4, Base: 1, Max: 1}, always, nil, 4, ErrUnavailable},
		"the time":     {t.Context(), late, always, nil, 1, ErrUnavailable},
		"ctx":          {ctx, slow, always, func() error { cancel(); return failed }, 1, context.Canceled},
		"an answer":    {t.Context(), slow, retryable, func() error { return ErrLockHeld }, 1, ErrLockHeld},
	} {
		tries := 0
		err := quietClient().retry(test.ctx, test.policy, test.again, func() error {
			tries++
			if test.send != nil {
				return test.send()
			}
			return failed
		})
		if tries != test.tries || !errors.Is(err, test.want) {
			t.Errorf("retry ended by %s: %d tries and %v, expected %d and %v", what, tries, err, test.tries, test.want)
		}
	}
}

// quietClient returns a client that only retries.
func quietClient() *Client {
	return &Client{retries: retryReport{logger: slog.New(slog.DiscardHandler)}}
}

// A refusal after a lost answer proves that the first attempt was not applied, or leaves it unknown.
func TestRefusalAfterALostAnswer(t *testing.T) {
	client := quietClient()
	stale := func(lastToken, lastSequence int64) api.Problem {
		return api.Problem{
			Code: api.CodeTokenStale, Token: pointer(int64(34)), Sequence: pointer(int64(2)),
			LastToken: pointer(lastToken), LastSequence: pointer(lastSequence),
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
		"the fence is not known":                        {api.Problem{Code: api.CodeTokenStale}, true},
		"a precondition":                                {api.Problem{Code: api.CodeVersionMismatch}, false},
		"the lock is held":                              {api.Problem{Code: api.CodeLockHeld}, false},
		"not served": {
			api.Problem{Code: api.CodeUnavailable, Outcome: api.OutcomeNotApplied}, true,
		},
		"another host": {api.Problem{Code: api.CodeUnknownHost}, true},
		"not let in":   {api.Problem{Code: api.CodeForbidden}, true},
	} {
		lost := &Error{Op: "put", Problem: &api.Problem{Code: api.CodeUnavailable, Retryable: true, Outcome: api.OutcomeUnknown}}
		answers := []error{lost, &Error{Op: "put", Problem: &test.problem}}
		tries := 0
		err := client.retry(context.Background(), RetryPolicy{Attempts: 2, Base: 1, Max: 1}, retryable, func() error {
			tries++
			return answers[tries-1]
		})
		if got := errors.Is(err, ErrOutcomeUnknown); got != test.doubt || !errors.Is(err, codeError(test.problem.Code)) ||
			tries != 2 {
			t.Errorf("%s: ErrOutcomeUnknown is %t after %d tries, expected %t: %v", what, got, tries, test.doubt, err)
		}
		if alone := answers[1]; errors.Is(alone, ErrOutcomeUnknown) {
			t.Errorf("%s: without a lost answer the outcome is unknown", what)
		}
	}
}

// TestEndIsSeenByAll checks that nobody who looks at a context at the moment of its end sees only half of that: the
// channel of Done is closed for everybody to whom the clocks say that the lease is over, also for a lease of a session.
func TestEndIsSeenByAll(t *testing.T) {
	t.Parallel()
	var b background
	b.start()
	defer b.cancel(nil)
	lost := func(why error) error { return &LostError{What: "it", Why: why} }
	begin := func(within *validity) *validity {
		v, err := newValidity(context.Background(), &b, within, lost)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	const ttl = 100 * time.Microsecond
	for range 2000 {
		session, own := begin(nil), begin(nil)
		ofSession := begin(session)
		for _, v := range []*validity{session, own} {
			v.set(readClock(), ttl, nil)
		}
		over := time.Now().Add(ttl)
		var looking sync.WaitGroup
		for _, v := range []*validity{own, own, ofSession, ofSession} {
			looking.Go(func() {
				for time.Now().Before(over) {
				}
				select {
				case <-v.context().Done():
				default:
					t.Error("the channel of Done is open after the end")
				}
				if err := context.Cause(v.context()); !errors.Is(err, ErrLeaseLost) {
					t.Errorf("the cause is %v", err)
				}
			})
		}
		looking.Wait()
	}
}

// TestUnusableTokenFileKeepsToken checks that the last good token stays in use while the content of its file is no
// token, and that the next good one is used.
func TestUnusableTokenFileKeepsToken(t *testing.T) {
	t.Parallel()
	c := &credential{path: filepath.Join(t.TempDir(), "token")}
	used := func(content string) string {
		t.Helper()
		if err := os.WriteFile(c.path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		c.readAt = time.Time{}
		header := http.Header{}
		c.authorize(header)
		return header.Get("Authorization")
	}
	if err := os.WriteFile(c.path, []byte("first\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := c.open(); err != nil {
		t.Fatal(err)
	}
	for _, content := range []string{"", " \n", "two words", "two\nlines", "second\r\nHost: b", "\x00", "sécond"} {
		if got := used(content); got != "Bearer first" {
			t.Errorf("with %q in the file, %q is sent, expected the first token", content, got)
		}
	}
	if got := used(" second\n"); got != "Bearer second" {
		t.Errorf("%q is sent, expected the second token", got)
	}
	if err := os.Remove(c.path); err != nil {
		t.Fatal(err)
	}
	c.readAt = time.Time{}
	header := http.Header{}
	if c.authorize(header); header.Get("Authorization") != "Bearer second" {
		t.Errorf("without the file, %q is sent, expected the second token", header.Get("Authorization"))
	}
}
