package sdk

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/lockclient"
	"github.com/fencegate/fencegate/lockclient/api"
)

// Whatever a client does continues at the next gateway when its own is killed or shuts down. When it freezes, so do
// calls; a stream and a wait notice that late.
func TestFailover(t *testing.T) {
	t.Parallel()
	for name, signal := range map[string]syscall.Signal{
		"killed": syscall.SIGKILL, "shut down": syscall.SIGTERM, "frozen": syscall.SIGSTOP,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var answerTimeout time.Duration // the default
			if signal == syscall.SIGSTOP {
				answerTimeout = time.Second
			}
			first, second, client := pair(t, lockclient.WithAnswerTimeout(answerTimeout))
			direct := newClient(t, second.URL)
			parts := []func(t *testing.T, client, direct *lockclient.Client) (after func()){
				leaseContinues, sessionContinues, writesContinue,
			}
			if signal != syscall.SIGSTOP {
				parts = append(parts, waiterContinues, watchContinues)
			}
			var after []func()
			for _, begin := range parts {
				after = append(after, begin(t, client, direct))
			}
			check(t, first.Signal(signal))
			for _, proceed := range after {
				proceed()
			}
		})
	}
}

// leaseContinues: none of a lease's writes is lost or doubled, and it is renewed.
func leaseContinues(t *testing.T, client, _ *lockclient.Client) (after func()) {
	t.Helper()
	ctx := await.Context(t)
	lease := mustAcquire(t, client, "lease", lockclient.WithTTL(time.Minute),
		lockclient.HeartbeatEvery(50*time.Millisecond))
	write := func(n int64) {
		result, err := lease.Put(ctx, "k", fmt.Append(nil, n))
		if err != nil || *result.Sequence != n || result.Version != n {
			t.Errorf("write %d returned %+v, %v", n, result, err)
		}
	}
	write(1)
	return func() {
		for n := range int64(10) {
			write(n + 2)
		}
		await.True(t, "a heartbeat at the second gateway", func() bool { return lease.HeartbeatErr() == nil })
		check(t, lease.Renew(ctx))
		check(t, lease.Release(ctx))
	}
}

// sessionContinues: a session is renewed, and its lease lasts.
func sessionContinues(t *testing.T, client, direct *lockclient.Client) (after func()) {
	t.Helper()
	ctx := await.Context(t)
	session, err := client.NewSession(ctx, lockclient.WithTTL(time.Minute),
		lockclient.HeartbeatEvery(50*time.Millisecond))
	check(t, err)
	lease, err := session.Acquire(ctx, "session")
	check(t, err)
	return func() {
		before, err := direct.API().Session(ctx, session.ID())
		check(t, err)
		await.True(t, "a heartbeat at the second gateway", func() bool {
			state, err := direct.API().Session(ctx, session.ID())
			return err == nil && state.ExpiresAt.After(before.ExpiresAt.Add(time.Second))
		})
		check(t, lease.Err())
		check(t, session.Close(ctx))
	}
}

// writesContinue: each write of an array is applied once.
func writesContinue(t *testing.T, client, direct *lockclient.Client) (after func()) {
	t.Helper()
	const count = 200
	lease := mustAcquire(t, client, "array")
	var outcomes []lockclient.WriteOutcome
	done := make(chan struct{})
	go func() {
		defer close(done)
		writes := slices.Repeat([]api.BulkWrite{{Op: "put", Key: "k", Value: []byte("1")}}, count)
		outcomes = lease.Writes(await.Context(t), writes)
	}()
	return func() {
		<-done
		for i, outcome := range outcomes {
			if outcome.Err != nil && !errors.Is(outcome.Err, lockclient.ErrOutcomeUnknown) {
				t.Fatalf("write %d: %v", i, outcome.Err)
			}
		}
		wantVersion(t, direct, "array", "k", count)
	}
}

// waiterContinues: a waiter is in the queue again, and gets the lock.
func waiterContinues(t *testing.T, client, direct *lockclient.Client) (after func()) {
	t.Helper()
	ctx := await.Context(t)
	held := mustAcquire(t, direct, "waiter", lockclient.WithTTL(time.Hour))
	var waiting sync.WaitGroup
	waiting.Go(func() {
		lease, err := client.Acquire(ctx, "waiter", lockclient.WithWait(time.Hour))
		if err != nil || lease.FencingToken() <= held.FencingToken() {
			t.Errorf("the waiter got %v, %v", lease, err)
		}
		lease.ReleaseOnce()
	})
	awaitQueue(t, direct, "waiter", 1)
	return func() {
		await.True(t, "the waiter in the queue of the second gateway", func() bool {
			lock, err := direct.API().Lock(ctx, "waiter")
			return err == nil && len(lock.Queue) == 1 && lock.Queue[0].OwnerID == client.Owner()
		})
		check(t, held.Release(ctx))
		waiting.Wait()
		wantFree(t, direct, "waiter")
	}
}

// watchContinues: a watch continues with the newest state, and greater versions.
func watchContinues(t *testing.T, client, direct *lockclient.Client) (after func()) {
	t.Helper()
	watch, err := client.Watch(await.Context(t), "watched")
	check(t, err)
	t.Cleanup(watch.Close)
	before := awaitState(t, watch, isFree)
	lease := mustAcquire(t, direct, "watched")
	return func() {
		held := awaitState(t, watch, isHeld)
		check(t, lease.Release(await.Context(t)))
		free := awaitState(t, watch, isFree)
		if held.Holders[0].FencingToken != lease.FencingToken() || before.Version >= held.Version || held.Version >= free.Version {
			t.Errorf("saw %+v, %+v and %+v, expected greater versions, and the token %d", before, held, free, lease.FencingToken())
		}
	}
}

// everyCall is a read, and all calls that change something. Those that may not be sent twice begin with an exclamation
// mark.
func everyCall(ctx context.Context, a *lockclient.API) map[string]func() error {
	once, again := lockclient.Write{Token: api.FencingToken{Token: 34}}, lockclient.Write{Token: numbered(34, 1)}
	transaction := func(sequence *int64) error {
		token := api.WriteToken{Resource: "a", FencingToken: new(int64(34)), Sequence: sequence}
		return second(a.Transaction(ctx, api.TransactionRequest{Fences: []api.WriteToken{token}}))
	}
	acquire := func(id *string) error { return second(a.Acquire(ctx, "a", api.AcquireRequest{RequestID: id})) }
	return map[string]func() error{
		"read":                 func() error { return second(a.Lock(ctx, "a")) },
		"renewal":              func() error { return second(a.Renew(ctx, "a", api.RenewRequest{})) },
		"release":              func() error { return a.Release(ctx, "a", api.ReleaseRequest{}) },
		"acquire, repeatable":  func() error { return acquire(new("r")) },
		"keepalive":            func() error { return second(a.KeepSessionAlive(ctx, "s")) },
		"end of a session":     func() error { return second(a.EndSession(ctx, "s")) },
		"numbered put":         func() error { return second(a.Put(ctx, "a", "k", again)) },
		"numbered delete":      func() error { return second(a.Delete(ctx, "a", "k", again)) },
		"numbered transaction": func() error { return transaction(new(int64(1))) },
		"! acquire":            func() error { return acquire(nil) },
		"! new session":        func() error { return second(a.CreateSession(ctx, api.SessionRequest{})) },
		"! put":                func() error { return second(a.Put(ctx, "a", "k", once)) },
		"! delete":             func() error { return second(a.Delete(ctx, "a", "k", once)) },
		"! transaction":        func() error { return transaction(nil) },
	}
}

// A call continues at the next gateway depending on whether it may have been applied, and whether it may be applied
// twice.
func TestWhichCallsFailOver(t *testing.T) {
	t.Parallel()
	for name := range everyCall(t.Context(), nil) {
		repeatable := name[0] != '!'
		for what, test := range map[string]struct {
			first     http.HandlerFunc
			continues bool
			unknown   bool
		}{
			"not applied": {unavailable(api.OutcomeNotApplied), true, false},
			"unknown":     {unavailable(api.OutcomeUnknown), repeatable, true},
			"no answer":   {hangUp, repeatable, name != "read"},
			"a proxy's answer": {
				func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(502) }, repeatable, name != "read",
			},
			"refused": {func(w http.ResponseWriter, _ *http.Request) {
				writeProblem(w, api.Problem{Status: 409, Code: api.CodeLockHeld})
			}, false, false},
		} {
			firstURL, firstCalls := serve(t, test.first)
			secondURL, secondCalls := serve(t, unavailable(api.OutcomeNotApplied))
			client := newClient(t, firstURL, lockclient.WithFailover(secondURL))
			err := everyCall(t.Context(), client.API())[name]()
			if firstCalls.Load() != 1 || (secondCalls.Load() == 1) != test.continues {
				t.Errorf("%s, %s: %d calls at the first gateway and %d at the second", name, what, firstCalls.Load(),
					secondCalls.Load())
			}
			if err == nil || errors.Is(err, lockclient.ErrOutcomeUnknown) != test.unknown {
				t.Errorf("%s, %s: %v matches ErrOutcomeUnknown: %t", name, what, err, !test.unknown)
			}
		}
	}
}

// A client stays with the gateway that works, and tries the others when that fails.
func TestClientPrefersAWorkingGateway(t *testing.T) {
	t.Parallel()
	var down atomic.Bool
	ready := func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"status":"ready"}`)) }
	working, workingCalls := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if down.Load() {
			unavailable(api.OutcomeNotApplied)(w, r)
			return
		}
		ready(w, r)
	})
	last, lastCalls := serve(t, ready)
	client := newClient(t, "http://"+closedAddress, lockclient.WithFailover(working, last))
	expect := func(atWorking, atLast int64) {
		t.Helper()
		for range 3 {
			check(t, client.API().Ready(t.Context()))
		}
		if workingCalls.Load() != atWorking || lastCalls.Load() != atLast {
			t.Errorf("saw %d and %d calls, expected %d and %d", workingCalls.Load(), lastCalls.Load(), atWorking, atLast)
		}
	}
	expect(3, 0)
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	wantCanceled(t, "Ready", client.API().Ready(canceled), api.OutcomeNotApplied)
	down.Store(true)
	expect(4, 3)
}

// hangUp reads the whole request, and closes the connection without an answer.
func hangUp(_ http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	panic(http.ErrAbortHandler)
}

func TestOutcomeOfWritesWithoutAnswer(t *testing.T) {
	t.Parallel()
	cut := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100")
		_, _ = w.Write([]byte(`{"resource":`))
	}
	plain, _ := serve(t, hangUp)
	cutting, _ := serve(t, cut)
	http2 := httptest.NewUnstartedServer(http.HandlerFunc(hangUp))
	http2.EnableHTTP2 = true
	http2.StartTLS()
	defer http2.Close()

	silent := &http.Client{Transport: roundTripper(func(*http.Request) (*http.Response, error) {
		return nil, errors.New("broken")
	})}
	for what, test := range map[string]struct {
		client *lockclient.API
		want   api.Outcome
	}{
		"a closed port":          {newAPI(t, "http://"+closedAddress), api.OutcomeNotApplied},
		"a failed TLS handshake": {newAPI(t, strings.Replace(plain, "http", "https", 1)), api.OutcomeNotApplied},
		"a hang-up":              {newAPI(t, plain), api.OutcomeUnknown},
		"a hang-up on HTTP/2": {
			newAPI(t, http2.URL, lockclient.WithHTTPClient(http2.Client())), api.OutcomeUnknown,
		},
		"a cut answer":       {newAPI(t, cutting), api.OutcomeUnknown},
		"a silent transport": {newAPI(t, plain, lockclient.WithHTTPClient(silent)), api.OutcomeUnknown},
	} {
		for name, call := range everyCall(t.Context(), test.client) {
			want, err := test.want, call()
			if name == "read" {
				want = api.OutcomeNotApplied
			}
			wantUnavailable(t, name+" after "+what, err, want, what != "a failed TLS handshake")
			if strings.Contains(err.Error(), `"http`) {
				t.Errorf("%s after %s: the text %v has the whole request in it", name, what, err)
			}
		}
	}
}

func TestOutcomeOfACanceledWrite(t *testing.T) {
	t.Parallel()
	received, finished := make(chan struct{}, 1), make(chan struct{})
	url, calls := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		received <- struct{}{}
		<-finished
	})
	t.Cleanup(func() { close(finished) })
	client := newAPI(t, url)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-received
		cancel()
	}()
	_, err := client.Put(ctx, "a", "k", lockclient.Write{})
	wantCanceled(t, "a Put under way", err, api.OutcomeUnknown)
	_, err = client.Put(ctx, "a", "k", lockclient.Write{})
	wantCanceled(t, "the next Put", err, api.OutcomeNotApplied)
	if calls.Load() != 1 {
		t.Errorf("%d calls were sent, expected 1", calls.Load())
	}
}

func TestEveryCallHasADeadline(t *testing.T) {
	t.Parallel()
	var deadline time.Time
	var limited bool
	client := newAPI(t, "http://host", lockclient.WithHTTPClient(&http.Client{
		Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
			deadline, limited = r.Context().Deadline()
			return nil, errors.New("not sent")
		}),
	}))
	wait := 600 * time.Second
	earliest := time.Now().Add(wait)

	_ = client.Ready(context.Background())
	if !limited || deadline.After(earliest) {
		t.Errorf("a call without a deadline got %v (%t), expected one before %v", deadline, limited, earliest)
	}
	_, _ = client.Acquire(context.Background(), "a", api.AcquireRequest{OwnerID: "w", WaitMS: wait.Milliseconds()})
	if !limited || !deadline.After(earliest) {
		t.Errorf("a call that waits for 600 s got the deadline %v (%t)", deadline, limited)
	}
	chosen := earliest.Add(time.Hour)
	ctx, cancel := context.WithDeadline(context.Background(), chosen)
	defer cancel()
	if _ = client.Ready(ctx); !deadline.Equal(chosen) {
		t.Errorf("the caller's deadline %v became %v", chosen, deadline)
	}
}

// wantUnavailable expects ErrUnavailable with this outcome.
func wantUnavailable(t *testing.T, what string, err error, want api.Outcome, retryable bool) {
	t.Helper()
	var problem *api.Problem
	if !errors.Is(err, lockclient.ErrUnavailable) || !errors.As(err, &problem) {
		t.Errorf("%s returned %v, expected ErrUnavailable", what, err)
	} else if problem.Outcome != want || problem.Retryable != retryable {
		t.Errorf("%s has the outcome %s, retryable %t (%v), expected %s, %t", what, problem.Outcome, problem.Retryable, err,
			want, retryable)
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
