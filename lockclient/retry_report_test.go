package lockclient_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencegate/fencegate/lockclient"
)

// nobody is the URL of a port on which nothing listens.
func nobody(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	defer func() { _ = listener.Close() }()
	return "http://" + listener.Addr().String()
}

// Each call that retries while no gateway serves reports every failed attempt to the hook, and to the log once in a
// while.
func TestRetriesAreReported(t *testing.T) {
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
			var log lockedBuffer
			ctx, cancel := context.WithCancel(context.WithValue(patient(t), t, "value"))
			defer cancel()
			var attempts []lockclient.Retry
			client := newClient(t, nobody(t), lockclient.WithLogger(slog.New(slog.NewTextHandler(&log, nil))),
				lockclient.WithRetryHook(func(hookCtx context.Context, failed lockclient.Retry) {
					if hookCtx.Value(t) != "value" || !errors.Is(failed.Err, lockclient.ErrUnavailable) || failed.Pause <= 0 {
						t.Errorf("the hook is called with %+v", failed)
					}
					if attempts = append(attempts, failed); len(attempts) == 3 {
						cancel()
					}
				}))
			if err := call(ctx, client); !errors.Is(err, lockclient.ErrUnavailable) {
				t.Errorf("got %v", err)
			}
			if len(attempts) != 3 || attempts[2].Attempt != 3 {
				t.Errorf("the attempts are %+v, want 3", attempts)
			}
			if text := log.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "level=WARN") || !strings.Contains(text, "refused") {
				t.Errorf("the log is %q, want one warning with the error", text)
			}
		})
	}
}

// Failing heartbeats are reported, too.
func TestFailingHeartbeatsAreReported(t *testing.T) {
	relay := newRelay(t)
	_, lock := shared(t)
	reported := make(chan lockclient.Retry, 100)
	client := newClient(t, relay.url, lockclient.WithLogger(slog.New(slog.DiscardHandler)),
		lockclient.WithRetryHook(func(_ context.Context, failed lockclient.Retry) { reported <- failed }))
	lease, err := client.Acquire(patient(t), lock, lockclient.WithHeartbeat(lockclient.HeartbeatEvery(20*time.Millisecond)))
	check(t, err)
	relay.close()
	select {
	case failed := <-reported:
		if !strings.Contains(failed.Err.Error(), "renew "+lease.Name()) {
			t.Errorf("reported: %v", failed.Err)
		}
	case <-patient(t).Done():
		t.Error("nothing was reported")
	}
}

// lockedBuffer may be written by many goroutines.
type lockedBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *lockedBuffer) Write(text []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(text)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}
