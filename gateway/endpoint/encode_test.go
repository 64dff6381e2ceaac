package endpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/fencegate/fencegate/lockclient/api"
	"github.com/fencegate/fencegate/store"
)

// A rejection has the problem of the table of errors, wrapped or not.
func TestRejectionProblems(t *testing.T) {
	t.Parallel()
	for verdict := range rejectionKinds {
		for _, reason := range []string{"superseded", "released", "reused", "shared"} {
			rejected := &store.RejectedError{
				Verdict: verdict, Reason: reason, Resource: "job", Key: "k", Token: 5, Sequence: new(int64(3)), GrantedToken: 7,
				LastToken: 6, LastSequence: 9, Version: 4,
			}
			direct, wrapped := ProblemOf(rejected), ProblemOf(errors.Join(rejected))
			if !reflect.DeepEqual(direct, wrapped) {
				t.Errorf("%s %s: the problem is\n%+v\nand wrapped\n%+v", verdict, reason, direct, wrapped)
			}
			if direct.Status < 400 || direct.Code != api.Code(verdict) || direct.Detail == "" ||
				strings.Contains(direct.Detail, "%!") {
				t.Errorf("%s %s: the problem is %+v", verdict, reason, direct)
			}
			if result := CodeOf(rejected); result != api.Code(verdict) {
				t.Errorf("%s is counted as %s", verdict, result)
			}
		}
	}
	if len(rejectionKinds) != 6 {
		t.Errorf("there are %d kinds of rejections, want 6", len(rejectionKinds))
	}
}

// recommended_retry_ms is one average hold per waiter ahead, between a minimum and a maximum.
func TestRetryAfter(t *testing.T) {
	for _, want := range []struct {
		remaining   time.Duration
		queueLength int
		retry       time.Duration
	}{
		{-time.Second, 0, 50 * time.Millisecond}, {0, 3, 200 * time.Millisecond},
		{400 * time.Millisecond, 2, 1200 * time.Millisecond}, {time.Hour, 9, 10 * time.Second},
		{0, 598, 29950 * time.Millisecond}, {time.Hour, math.MaxInt, 30 * time.Second},
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
			"Try again in 3",
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
		"draining": {Busy("The gateway is ending."), api.CodeUnavailable, true, "ending", `"outcome":"not_applied"`},
	} {
		answer := ProblemOf(want.err)
		text, _ := json.Marshal(answer)
		if answer.Code != want.code || answer.Retryable != want.retryable ||
			!strings.Contains(answer.Detail, want.detail) || !strings.Contains(string(text), want.data) {
			t.Errorf("%s: the problem is %s, want %s with %q and %s", name, text, want.code, want.detail, want.data)
		}
	}
}
