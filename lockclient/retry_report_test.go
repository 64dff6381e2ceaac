package lockclient_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/internal/testenv/await"
	"github.com/fencegate/fencegate/internal/testenv/process"
	"github.com/fencegate/fencegate/lockclient"
)

// Each call that retries while no gateway serves reports every failed attempt to the hook, and to the log once in a
// while.
func TestRetriesAreReported(t *testing.T) {
	t.Parallel()
	for what, call := range map[string]func(context.Context, *lockclient.Client) error{
		"Do": func(ctx context.Context, client *lockclient.Client) error {
			return client.Do(ctx, "a", func(context.Context, *lockclient.Lease) error { return nil })
		},
		"Campaign": func(ctx context.Context, client *lockclient.Client) error {
			return second(client.Campaign(ctx, "a", nil))
		},
		"AcquireWithRetry": func(ctx context.Context, client *lockclient.Client) error {
			return second(client.AcquireWithRetry(ctx, "a", often))
		},
	} {
		t.Run(what, func(t *testing.T) {
			var log process.Buffer
			ctx, cancel := context.WithCancel(context.WithValue(await.Context(t), t, "value"))
			defer cancel()
			var attempts []lockclient.Retry
			client := newClient(t, "http://"+closedAddress, lockclient.WithLogger(slog.New(slog.NewTextHandler(&log, nil))),
				lockclient.WithRetryHook(func(hookCtx context.Context, failed lockclient.Retry) {
					if hookCtx.Value(t) != "value" || !errors.Is(failed.Err, lockclient.ErrUnavailable) || failed.Pause <= 0 {
						t.Errorf("the hook is called with %+v", failed)
					}
					if attempts = append(attempts, failed); len(attempts) == 3 {
						cancel()
					}
				}))
			wantCanceled(t, what, call(ctx, client), api.OutcomeNotApplied)
			if len(attempts) != 3 || attempts[2].Attempt != 3 {
				t.Errorf("the attempts are %+v, expected 3", attempts)
			}
			if text := log.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "level=WARN") ||
				!strings.Contains(text, "refused") {
				t.Errorf("the log is %q, expected one warning with the error", text)
			}
		})
	}
}

func TestFailingHeartbeatsAreReported(t *testing.T) {
	t.Parallel()
	relay := newRelay(t)
	_, lock := shared(t)
	reported := make(chan lockclient.Retry, 100)
	client := newClient(t, relay.url, lockclient.WithLogger(slog.New(slog.DiscardHandler)),
		lockclient.WithRetryHook(func(_ context.Context, failed lockclient.Retry) { reported <- failed }))
	beat := lockclient.HeartbeatEvery(20 * time.Millisecond)
	lease, err := client.Acquire(await.Context(t), lock, beat) // can't be released
	check(t, err)
	relay.close()
	failed := await.Receive(t, "a failed heartbeat", reported)
	if !strings.Contains(failed.Err.Error(), "renew "+lease.Name()) {
		t.Errorf("the report is %v, expected it to name the renewal", failed.Err)
	}
}
