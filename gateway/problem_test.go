package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/gateway/endpoint"
	"github.com/fencegate/fencegate/store"
)

// defective is a backend whose reads of locks fail.
type defective struct {
	Backend

	fail func() error
}

func (d defective) LockAndFence(context.Context, store.Name) (store.Lock, *store.Fence, error) {
	return store.Lock{}, nil, d.fail()
}

// An unknown error is answered with 500 and no cause. The log has the cause.
func TestDefects(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func() error{
		"error":         func() error { return errors.New("relation secret does not exist") },
		"panic":         func() error { panic("secret") },
		"wrapped error": func() error { return fmt.Errorf("at: %w", context.Canceled) },
	} {
		t.Run(name, func(t *testing.T) {
			var log strings.Builder
			config := Config{Logger: slog.New(slog.NewTextHandler(&log, nil))}
			gateway, err := New(config, defective{fail: fail}, nil, NewMetrics("test"))
			if err != nil {
				t.Fatal(err)
			}
			recorder := httptest.NewRecorder()
			gateway.ServeHTTP(recorder, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/v1/locks/job", nil))
			var problem api.Problem
			if err := json.Unmarshal(recorder.Body.Bytes(), &problem); err != nil {
				t.Fatal(err)
			}
			if recorder.Code != http.StatusInternalServerError || problem.Code != api.CodeInternal || problem.Retryable ||
				recorder.Header().Get("Content-Type") != api.ProblemContentType {
				t.Errorf("answered %d %s, want the problem internal, not retryable", recorder.Code, recorder.Body)
			}
			if strings.Contains(recorder.Body.String(), "secret") || !strings.Contains(log.String(), "path=/v1/locks/job") {
				t.Errorf("the cause must be only in the log: answered %s, logged %s", recorder.Body, log.String())
			}
			if name == "panic" && (!strings.Contains(log.String(), "secret") ||
				!strings.Contains(log.String(), "problem_test.go")) {
				t.Errorf("the log lacks the place of the panic: %s", log.String())
			}
		})
	}
}

// A limit out of range is refused with the name and value of its flag.
func TestConfigLimits(t *testing.T) {
	for flag, config := range map[string]Config{
		"--body-bytes-max is 1023":                         {BodyBytesMax: 1023},
		"--body-bytes-max is -1":                           {BodyBytesMax: -1},
		"--body-bytes-max is 268435457":                    {BodyBytesMax: 256<<20 + 1},
		"--body-timeout is 99ms":                           {BodyTimeout: 99 * time.Millisecond},
		"--request-timeout is 99ms":                        {RequestTimeout: 99 * time.Millisecond},
		"--request-timeout is -1s":                         {RequestTimeout: -time.Second},
		"--shutdown-timeout is -1ns, it must be 0 or more": {ShutdownTimeout: -1},
		"--drain-delay is 1s, it must be 0 or more, and less than --shutdown-timeout, 1s": {
			DrainDelay: time.Second, ShutdownTimeout: time.Second,
		},
		"--event-keep-alive is 99ms":       {KeepAlive: 99 * time.Millisecond},
		"--watches-max is -1":              {WatchesMax: -1},
		"--terraform-lock-ttl is 25h0m0s":  {TerraformLockTTL: 25 * time.Hour},
		"--terraform-versions-max is 1001": {TerraformVersionsMax: 1001},
		"--access-log-sample":              {AccessLogSample: -1},
	} {
		_, err := New(config, nil, nil, NewMetrics("test"))
		if !errors.Is(err, ErrInvalidConfig) || !strings.Contains(err.Error(), flag) {
			t.Errorf("%+v: %v, want ErrInvalidConfig with %q", config, err, flag)
		}
	}
	for _, config := range []Config{
		{}, {BodyBytesMax: 1024}, {BodyBytesMax: 256 << 20},
		{BodyTimeout: 100 * time.Millisecond, RequestTimeout: 100 * time.Millisecond, ShutdownTimeout: 1},
	} {
		if _, err := New(config, nil, nil, NewMetrics("test")); err != nil {
			t.Errorf("%+v: %v", config, err)
		}
	}
}

// The detail of a problem says what the client can do, and the problem has the data for it.
func TestProblemsOfQueuesAndSessions(t *testing.T) {
	for name, want := range map[string]struct {
		err       error
		code      api.Code
		retryable bool
		detail    string
		data      string
	}{
		"held": {
			&store.HeldError{Lock: "job", OwnerID: "w", Remaining: time.Hour, QueueLength: 40}, api.CodeLockHeld, true,
			"Try again after recommended_retry_ms",
			`"holder":{"owner_id":"w","expires_at":"0001-01-01T00:00:00.000Z"},"queue_length":40,"recommended_retry_ms":3`,
		},
		"others before": {fmt.Errorf("acquire: %w", &store.HeldError{Lock: "job", QueueLength: 2}), api.CodeLockHeld, true,
			"is free, and 2 are before you in the queue. Try again", `"retryable":true,"queue_length":2,"recommended_retry_ms":1`},
		"deadlock": {
			&store.DeadlockError{Cycle: []store.Wait{{OwnerID: "a", Lock: "x"}, {OwnerID: "b", Lock: "y"}}}, api.CodeDeadlock,
			false,
			"2 owners that wait for each other", `"cycle":[{"owner_id":"a","lock":"x"},{"owner_id":"b","lock":"y"}]`,
		},
		"session": {
			&store.LostError{Reason: "expired"}, api.CodeLeaseLost, false, "The session has ended: expired. Stop",
			`"reason":"expired"`,
		},
		"shared": {
			&store.RejectedError{Verdict: store.VerdictTokenStale, Reason: "shared", Resource: "job", Token: 3},
			api.CodeTokenStale,
			false, "which is that of a shared lease, and those can't write", `"reason":"shared"`,
		},
		"no tokens left": {
			fmt.Errorf("%w: nextval", store.ErrTokensExhausted), api.CodeUnavailable, false, "administrator",
			`"outcome":"not_applied"`,
		},
		"draining": {endpoint.Busy("The gateway is ending."), api.CodeUnavailable, true, "ending", `"outcome":"not_applied"`},
	} {
		answer := endpoint.ProblemOf(want.err)
		if text := encode(answer); answer.Code != want.code || answer.Retryable != want.retryable ||
			!strings.Contains(answer.Detail, want.detail) || !strings.Contains(text, want.data) {
			t.Errorf("%s: the problem is %s, want %s with %q and %s", name, text, want.code, want.detail, want.data)
		}
	}
}
