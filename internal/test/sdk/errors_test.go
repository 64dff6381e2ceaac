package sdk

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/lockclient"
	"github.com/fencegate/fencegate/lockclient/api"
)

var sentinels = map[api.Code]error{
	api.CodeInvalidRequest:      lockclient.ErrInvalidRequest,
	api.CodeInvalidName:         lockclient.ErrInvalidName,
	api.CodeInvalidToken:        lockclient.ErrInvalidToken,
	api.CodeUnauthenticated:     lockclient.ErrUnauthenticated,
	api.CodeForbidden:           lockclient.ErrForbidden,
	api.CodeUnknownHost:         lockclient.ErrUnknownHost,
	api.CodeNotFound:            lockclient.ErrNotFound,
	api.CodeLockHeld:            lockclient.ErrLockHeld,
	api.CodeDeadlock:            lockclient.ErrDeadlock,
	api.CodeLeaseLost:           lockclient.ErrLeaseLost,
	api.CodeNotExternal:         lockclient.ErrNotExternal,
	api.CodeUnsupported:         lockclient.ErrUnsupported,
	api.CodeTokenRequired:       lockclient.ErrTokenRequired,
	api.CodeTokenUnknown:        lockclient.ErrTokenUnknown,
	api.CodeTokenStale:          lockclient.ErrTokenStale,
	api.CodeTokenReused:         lockclient.ErrTokenReused,
	api.CodeLeaseMismatch:       lockclient.ErrLeaseMismatch,
	api.CodeLeaseExpired:        lockclient.ErrLeaseExpired,
	api.CodeVersionMismatch:     lockclient.ErrVersionMismatch,
	api.CodeTooLarge:            lockclient.ErrTooLarge,
	api.CodeConstraintViolation: lockclient.ErrConstraintViolation,
	api.CodeRowsMismatch:        lockclient.ErrRowsMismatch,
	api.CodeRateLimited:         lockclient.ErrRateLimited,
	api.CodeUnavailable:         lockclient.ErrUnavailable,
	api.CodeInternal:            lockclient.ErrInternal,
}

// notHolder are the codes below ErrNotHolder.
var notHolder = []api.Code{
	api.CodeLeaseLost, api.CodeTokenStale, api.CodeTokenUnknown, api.CodeLeaseMismatch, api.CodeLeaseExpired,
}

func TestErrorsMatchByCode(t *testing.T) {
	t.Parallel()
	token := int64(7)
	for code, want := range sentinels {
		// The status is wrong on purpose: only the code counts.
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			writeProblem(w, api.Problem{Status: http.StatusTeapot, Code: code, Detail: "do this", Token: &token})
		}))
		_, err := newAPI(t, server.URL).Put(context.Background(), "a/b", "k", lockclient.Write{})
		server.Close()

		for other, sentinel := range sentinels {
			if errors.Is(err, sentinel) != (other == code) {
				t.Errorf("the error %s matches %s: %t", code, other, other != code)
			}
		}
		below := slices.Contains(notHolder, code)
		if errors.Is(err, lockclient.ErrNotHolder) != below || errors.Is(want, lockclient.ErrNotHolder) != below {
			t.Errorf("the error or the sentinel %s matches ErrNotHolder: %t", code, !below)
		}
		var problem *api.Problem
		if !errors.Is(err, want) || !errors.As(err, &problem) || problem.Code != code || *problem.Token != token {
			t.Errorf("%s: got %v, problem %+v", code, err, problem)
		}
		if text := "put a/b k: " + string(code) + ": do this"; err.Error() != text {
			t.Errorf("the text is %q, expected %q", err, text)
		}
	}
}

func TestForeignAnswers(t *testing.T) {
	t.Parallel()
	reply := func(status int, contentType, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", contentType)
			w.Header().Set("Location", "/elsewhere")
			w.Header().Set("ETag", `"7"`)
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
		}
	}
	for what, handler := range map[string]http.HandlerFunc{
		"a proxy's page":            reply(502, "text/html", "<html>\n<h1>Bad Gateway</h1>"),
		"no body":                   reply(504, "", ""),
		"a proxy's own error":       reply(500, "text/html", "<html>"),
		"a problem without a code":  reply(404, api.ProblemContentType, `{"title":"Not Found"}`),
		"a problem that is no JSON": reply(500, api.ProblemContentType, `oops`),
		"success without content":   reply(204, "", ""),
		"success of another kind":   reply(200, "application/json", `{"status":"ok"}`),
	} {
		server := httptest.NewServer(handler)
		client, ctx := newAPI(t, server.URL), context.Background()
		errs := []error{
			second(client.Acquire(ctx, "a", api.AcquireRequest{OwnerID: "w"})),
			second(client.Renew(ctx, "a", api.RenewRequest{OwnerID: "w"})),
			second(client.Put(ctx, "a", "k", lockclient.Write{})),
			second(client.Delete(ctx, "a", "k", lockclient.Write{})),
			second(client.Get(ctx, "a", "k")),
			second(client.Transaction(ctx, api.TransactionRequest{Ops: []api.Op{{Op: "delete"}}})),
		}
		server.Close()
		for _, err := range errs {
			var answer *lockclient.AnswerError
			if !errors.Is(err, lockclient.ErrForeignAnswer) || !errors.As(err, &answer) || answer.Status == 0 {
				t.Errorf("%s: got %v, expected ErrForeignAnswer with a status", what, err)
			} else if strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), server.URL) {
				t.Errorf("%s: expected one line with the URL, saw %q", what, err)
			} else if away := answer.Status >= 502; errors.Is(err, lockclient.ErrUnavailable) != away {
				t.Errorf("%s: got %v, expected ErrUnavailable for 502, 503 and 504 alone", what, err)
			} else if errors.Is(err, lockclient.ErrOutcomeUnknown) != !strings.HasPrefix(err.Error(), "get") {
				t.Errorf("%s: got %v, expected ErrOutcomeUnknown for all calls but reads", what, err)
			}
		}
	}
}

func TestWeakETag(t *testing.T) {
	t.Parallel()
	url, _ := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("ETag", `W/"7"`)
		w.Header().Set(api.HeaderFencingToken, "34.2")
	})
	record, err := newAPI(t, url).Get(context.Background(), "a", "k")
	if err != nil || record.Version != 7 || record.Token.String() != "34.2" {
		t.Errorf("got %+v, %v", record, err)
	}
}

func TestMalformedRequestsAreNotSent(t *testing.T) {
	t.Parallel()
	url, _ := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("%s %s was sent", r.Method, r.URL)
	})
	client, ctx := newAPI(t, url), context.Background()

	_, metadataErr := client.Acquire(ctx, "a", api.AcquireRequest{OwnerID: "w", Metadata: []byte(`{"x":`)})
	_, leaseErr := client.Put(ctx, "a", "k", lockclient.Write{LeaseID: "x\r\nFencing-Token: 9"})
	_, typeErr := client.Put(ctx, "a", "k", lockclient.Write{ContentType: "text/plain\n"})
	for _, err := range []error{metadataErr, leaseErr, typeErr} {
		if !errors.Is(err, lockclient.ErrInvalidRequest) || strings.Contains(err.Error(), "\n") {
			t.Errorf("got %v, expected invalid_request in one line", err)
		}
	}
}

// wantLost expects ErrLeaseLost of a call that was not sent, and nothing that asks for a retry.
func wantLost(t *testing.T, what string, err error) {
	t.Helper()
	wantErr(t, what, err, lockclient.ErrLeaseLost)
	wantErr(t, what, err, context.Canceled)
	problem := lockclient.ProblemOf(err)
	if errors.Is(err, lockclient.ErrUnavailable) || errors.Is(err, lockclient.ErrOutcomeUnknown) ||
		problem == nil || problem.Code != api.CodeLeaseLost || problem.Retryable {
		t.Errorf("%s returned %v with %+v, expected lease_lost without a retry", what, err, problem)
	}
}

// wantCanceled expects the error of a call that the caller canceled: it has the outcome, and asks for no retry.
func wantCanceled(t *testing.T, what string, err error, want api.Outcome) {
	t.Helper()
	wantErr(t, what, err, context.Canceled)
	problem := lockclient.ProblemOf(err)
	if errors.Is(err, lockclient.ErrUnavailable) || problem == nil || problem.Retryable || problem.Outcome != want ||
		errors.Is(err, lockclient.ErrOutcomeUnknown) != (want == api.OutcomeUnknown) {
		t.Errorf("%s returned %v with %+v, expected no retry and the outcome %s", what, err, problem, want)
	}
}

// callsUnder returns the error of each kind of call, made with ctx.
func callsUnder(ctx context.Context, client *lockclient.Client, lease *lockclient.Lease) map[string]error {
	other := lease.Name() + "/other"
	return map[string]error{
		"Put":              second(lease.Put(ctx, "k", nil)),
		"Delete":           second(lease.Delete(ctx, "k")),
		"Transaction":      second(lease.Transaction(ctx, lockclient.PutOp("k", nil, ""))),
		"Get":              second(client.API().Get(ctx, lease.Name(), "k")),
		"Acquire":          second(client.Acquire(ctx, other)),
		"AcquireWithRetry": second(client.AcquireWithRetry(ctx, other, lockclient.RetryPolicy{})),
		"NewSession":       second(client.NewSession(ctx)),
		"Elect":            second(client.Elect(ctx, other)),
		"Writes":           lease.Writes(ctx, []api.BulkWrite{{Op: "put", Key: "k", Value: []byte("1")}})[0].Err,
		"Watch":            second(client.Watch(ctx, lease.Name())),
	}
}

// A call under the context of a lost lease returns ErrLeaseLost, not ErrUnavailable: no retry can succeed.
func TestCallsUnderALostLease(t *testing.T) {
	t.Parallel()
	client, lock := shared(t)
	lease := mustAcquire(t, client, lock, lockclient.HeartbeatEvery(20*time.Millisecond))
	mustBreak(t, client, lock)
	_ = causeOf(t, "the context", lease.Context())
	derived, cancel := context.WithTimeout(lease.Context(), time.Hour)
	defer cancel()
	_ = causeOf(t, "a derived context", derived)
	other := mustAcquire(t, client, lock+"/kept")
	wantLost(t, "Put under another lease", second(other.Put(lease.Context(), "k", nil)))
	wantLost(t, "Renew of another lease", other.Renew(lease.Context()))
	check(t, other.Err())
	for what, ctx := range map[string]context.Context{"the context": lease.Context(), "a derived context": derived} {
		for call, err := range callsUnder(ctx, client, lease) {
			wantLost(t, call+" under "+what, err)
		}
	}
}

// A call that its caller has canceled asks for no retry.
func TestCallsUnderACanceledContext(t *testing.T) {
	t.Parallel()
	client, lock := shared(t)
	lease := mustAcquire(t, client, lock)
	ctx, cancel := context.WithCancel(await.Context(t))
	cancel()
	wantCanceled(t, "Renew", lease.Renew(ctx), api.OutcomeNotApplied)
	for call, err := range callsUnder(ctx, client, lease) {
		wantCanceled(t, call, err, api.OutcomeNotApplied)
	}
}

// A write that waits for its turn when the lease is lost is not sent. A write under way may have been applied.
func TestLeaseIsLostDuringWrites(t *testing.T) {
	t.Parallel()
	direct, lock := shared(t)
	relay := newRelay(t)
	lease := mustAcquire(t, newClient(t, relay.url), lock, lockclient.WithTTL(5*time.Second),
		lockclient.WithoutHeartbeat())
	relay.hold(true)
	first := make(chan error, 1)
	go func() { first <- second(lease.Put(lease.Context(), "k", []byte("1"))) }()
	awaitValue(t, direct, lock, "k", "1")
	waiting := second(lease.Put(lease.Context(), "k", []byte("2")))
	if !errors.Is(waiting, lockclient.ErrLeaseLost) {
		t.Errorf("the waiting Put returned %v, expected ErrLeaseLost", waiting)
	}
	wantLost(t, "the waiting Put", waiting)
	err := await.Receive(t, "the first Put", first)
	wantErr(t, "the first Put", err, lockclient.ErrLeaseLost)
	wantErr(t, "the first Put", err, lockclient.ErrOutcomeUnknown)
	if errors.Is(err, lockclient.ErrUnavailable) {
		t.Errorf("the first Put returned %v, which asks for a retry", err)
	}
	relay.hold(false)
	relay.cut()
}

// A deadline that ends a wait is context.DeadlineExceeded, and ErrLockHeld with the holder: the gateways answered.
func TestDeadlineEndsAWait(t *testing.T) {
	t.Parallel()
	client, lock := shared(t)
	mustAcquire(t, client, lock, lockclient.WithLeaseOwner("holder"))
	var waiting sync.WaitGroup
	for what, wait := range map[string]func(context.Context) error{
		"Do": func(ctx context.Context) error {
			return client.Do(ctx, lock, func(context.Context, *lockclient.Lease) error { return nil })
		},
		"Acquire": func(ctx context.Context) error {
			return second(client.Acquire(ctx, lock, lockclient.WithWait(time.Hour)))
		},
		"Elect": func(ctx context.Context) error { return second(client.Elect(ctx, lock)) },
		"AcquireWithRetry": func(ctx context.Context) error {
			return second(client.AcquireWithRetry(ctx, lock, lockclient.RetryPolicy{Attempts: 1000}))
		},
	} {
		waiting.Go(func() {
			ctx, cancel := context.WithTimeout(await.Context(t), 6*time.Second)
			defer cancel()
			err := wait(ctx)
			wantErr(t, what, err, context.DeadlineExceeded)
			wantErr(t, what, err, lockclient.ErrLockHeld)
			if errors.Is(err, lockclient.ErrUnavailable) || errors.Is(err, lockclient.ErrOutcomeUnknown) {
				t.Errorf("%s returned %v, expected no other sentinel", what, err)
			}
			if holder := lockclient.ProblemOf(err).Holder; holder == nil || holder.OwnerID != "holder" {
				t.Errorf("%s returned the holder %+v", what, holder)
			}
		})
	}
	waiting.Wait()
	awaitQueue(t, client, lock, 0)
}

// A release under the lease's own context is sent, although it ends that context.
func TestReleaseUnderItsOwnContext(t *testing.T) {
	t.Parallel()
	client, lock := shared(t)
	check(t, client.Do(await.Context(t), lock, func(ctx context.Context, lease *lockclient.Lease) error {
		derived, cancel := context.WithTimeout(ctx, time.Hour)
		defer cancel()
		err := lease.Release(derived)
		wantFree(t, client, lock)
		return err
	}))
	session, err := client.NewSession(await.Context(t))
	check(t, err)
	check(t, session.Close(session.Context()))
}
