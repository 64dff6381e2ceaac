package lockclient

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"time"
)

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

// WithRetryHook sets a function that is called after each failed attempt that is retried: of acquires, campaigns,
// writes, renewals, heartbeats, releases, pipelines and watches. [Client.Do] and Campaign retry until their ctx ends;
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
