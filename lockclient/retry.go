package lockclient

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/fencegate/fencegate/lockclient/api"
)

// RetryPolicy bounds the retries of a call. The pause between two tries is random, and at most Base, 2·Base, 4·Base …
// Max (full jitter, so that clients that failed together don't come back together). A pause that the gateway asks for
// is added, up to Max.
type RetryPolicy struct {
	// Attempts is the number of tries in all. Default 10, also for a value below 1.
	Attempts int
	// Base is the longest first pause. Default 100 ms.
	Base time.Duration
	// Max is the longest pause. Default 5 s.
	Max time.Duration
	// Within, if positive, is how long after the first try the last one may begin.
	Within time.Duration
}

// untilAnswered is the policy of a request that may be sent again as it is.
var untilAnswered = RetryPolicy{
	Attempts: 100, Base: 50 * time.Millisecond, Max: 2 * time.Second, Within: 30 * time.Second,
}

func (p RetryPolicy) withDefaults() RetryPolicy {
	p.Attempts = cmp.Or(max(0, p.Attempts), 10)
	p.Base = cmp.Or(max(0, p.Base), 100*time.Millisecond)
	p.Max = cmp.Or(max(0, p.Max), 5*time.Second)
	return p
}

// pause returns the pause after the try with this number, from 1. hint is the pause that the gateway asks for, and
// random is from 0 to below 1.
func (p RetryPolicy) pause(try int, hint time.Duration, random float64) time.Duration {
	longest := p.Max
	// Beyond 2^62 a shift would overflow; Max is reached long before.
	if shift := try - 1; shift < 62 && p.Base <= p.Max>>shift {
		longest = p.Base << shift
	}
	return min(max(hint, 0), p.Max) + time.Duration(random*float64(longest))
}

// retry is Client.retry for a call with a result.
func retry[T any](
	ctx context.Context, c *Client, policy RetryPolicy, again func(error) bool, send func() (T, error),
) (result T, err error) {
	err = c.retry(ctx, policy, again, func() error {
		result, err = send()
		return err
	})
	return result, err
}

// retry calls send until it succeeds, or fails with an error that again does not accept, or policy or ctx ends it. The
// error matches ErrOutcomeUnknown if one of the tries may have been applied and no later one has settled it.
func (c *Client) retry(ctx context.Context, policy RetryPolicy, again func(error) bool, send func() error) error {
	policy = policy.withDefaults()
	began := time.Now()
	var doubt, held error
	for try := 1; ; try++ {
		err := remember(send(), doubt)
		if err == nil || !again(err) || try >= policy.Attempts || ctx.Err() != nil {
			return endedWith(ctx, err, held)
		}
		if errors.Is(err, ErrLockHeld) {
			held = err
		}
		if doubt == nil && errors.Is(err, ErrOutcomeUnknown) {
			doubt = err
		}
		pause := policy.pause(try, hintOf(err), jitter())
		if policy.Within > 0 && time.Since(began)+pause > policy.Within {
			return err
		}
		if retryable(err) {
			c.retries.report(ctx, Retry{Err: err, Attempt: try, Pause: pause})
		}
		if sleep(ctx, pause) != nil {
			return endedWith(ctx, err, held)
		}
	}
}

// retryable says that the same call may succeed the next time. The status 400 without a problem document is that of
// another protocol or service, as of a port that expects TLS.
func retryable(err error) bool {
	if problem := ProblemOf(err); problem != nil {
		return problem.Retryable && (problem.Code == api.CodeUnavailable || problem.Code == api.CodeRateLimited)
	}
	var foreign *AnswerError
	return errors.As(err, &foreign) && foreign.Status != http.StatusBadRequest
}

func hintOf(err error) time.Duration {
	var refusal *Error
	if errors.As(err, &refusal) {
		return refusal.RetryAfter
	}
	return 0
}

func sleep(ctx context.Context, pause time.Duration) error {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// jitter is from 0 to below 1.
func jitter() float64 {
	return rand.Float64() //nolint:gosec // jitter needs no secrecy
}

// retryLogEvery is the least time between two log lines of one client about failed attempts.
const retryLogEvery = 10 * time.Second

// Retry is a failed attempt of a call that is retried after a pause.
type Retry struct {
	// Err is the error of the attempt. It names the call, and is ErrUnavailable, ErrRateLimited or ErrForeignAnswer.
	Err error
	// Attempt is the number of attempts that have failed in a row.
	Attempt int
	// Pause is the time until the next attempt.
	Pause time.Duration
}

// WithRetryHook sets a function that is called after each failed attempt that is retried: of acquires,
// writes, renewals, heartbeats, releases and watches. [Client.Do] and Elect retry until their ctx ends;
// without the hook and the log a program can't see that no gateway serves. ErrLockHeld is an answer, and not
// reported.
//
// ctx has the values of the call's ctx; that of a heartbeat has none. Many goroutines call hook at once, and it must
// not block.
func WithRetryHook(hook func(ctx context.Context, failed Retry)) Option {
	return func(c *Client) { c.retries.hook = hook }
}

// WithLogger sets the logger for failed attempts that are retried. They are logged as warnings, at most one in 10
// seconds, with the number of those left out. Default slog.Default(); a logger with slog.DiscardHandler logs nothing.
func WithLogger(logger *slog.Logger) Option {
	return func(c *Client) { c.retries.logger = logger }
}

// retryReport reports failed attempts. Its zero value logs to slog.Default().
type retryReport struct {
	hook   func(context.Context, Retry)
	logger *slog.Logger

	mu      sync.Mutex
	logged  time.Time
	skipped int
}

func (r *retryReport) report(ctx context.Context, failed Retry) {
	if r.hook != nil {
		r.hook(ctx, failed)
	}
	if skipped, due := r.due(); due {
		cmp.Or(r.logger, slog.Default()).WarnContext(ctx, "fencegate: a call failed and is retried",
			"error", failed.Err, "attempt", failed.Attempt, "pause", failed.Pause, "not_logged", skipped)
	}
}

// due says whether a line may be logged now, and how many were left out before it.
func (r *retryReport) due() (skipped int, due bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.logged.IsZero() && time.Since(r.logged) < retryLogEvery {
		r.skipped++
		return 0, false
	}
	skipped, r.skipped, r.logged = r.skipped, 0, time.Now()
	return skipped, true
}
