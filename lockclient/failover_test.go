package lockclient_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/internal/gatewayprocess"
	"github.com/fencegate/fencegate/internal/pgtest"
	"github.com/fencegate/fencegate/lockclient"
)

// pair is two gateways before one database, and a client of both that asks the first one first.
func pair(t *testing.T, opts ...lockclient.Option) (first, second *gatewayprocess.Process, client *lockclient.Client) {
	t.Helper()
	databaseURL := pgtest.Migrated(t)
	first, second = startProcess(t, databaseURL), startProcess(t, databaseURL)
	return first, second, newClient(t, first.URL, append(opts, lockclient.WithFailover(second.URL))...)
}

// Work goes on over the death of a gateway: the lease is renewed and written under, none of its writes is lost or
// doubled.
func TestFailoverWhenAGatewayIsKilled(t *testing.T) {
	first, _, client := pair(t)
	ctx := patient(t)
	lease, err := client.Acquire(ctx, "job", lockclient.WithTTL(5*time.Second), lockclient.WithHeartbeat(lockclient.HeartbeatEvery(50*time.Millisecond)))
	check(t, err)
	const writes = 60
	for i := range writes {
		if i == writes/3 {
			go first.Kill() // in the middle of a write, with luck
		}
		result, err := lease.Put(ctx, "k", fmt.Append(nil, i))
		check(t, err)
		if *result.Sequence != int64(i+1) || result.Version != int64(i+1) {
			t.Fatalf("write %d: %+v", i, result)
		}
	}
	<-first.Ended()
	eventually(t, func() bool { return lease.HeartbeatErr() == nil })
	check(t, lease.Renew(ctx))
	check(t, lease.Release(ctx))
}

// A gateway that stands still costs a heartbeat a part of the TTL only.
func TestFailoverWhenAGatewayIsFrozen(t *testing.T) {
	first, second, client := pair(t, lockclient.WithAnswerTimeout(500*time.Millisecond))
	ctx := patient(t)
	lease, err := client.Acquire(ctx, "job", lockclient.WithTTL(6*time.Second), lockclient.WithHeartbeat(lockclient.HeartbeatEvery(100*time.Millisecond)))
	check(t, err)
	check(t, first.Signal(syscall.SIGSTOP))
	defer func() { _ = first.Signal(syscall.SIGCONT) }()

	direct := newClient(t, second.URL)
	granted, err := direct.API().Lock(ctx, "job")
	check(t, err)
	eventually(t, func() bool {
		state, err := direct.API().Lock(ctx, "job")
		return err == nil && len(state.Holders) == 1 && state.Holders[0].ExpiresAt.After(granted.Holders[0].ExpiresAt.Add(7*time.Second))
	})
	if lease.Err() != nil {
		t.Error(lease.Err())
	}
	if _, err := lease.Put(ctx, "k", nil); err != nil {
		t.Error(err)
	}
	if _, err := client.Acquire(ctx, "other"); err != nil {
		t.Error(err)
	}
	check(t, lease.Release(ctx))
}

// counted is a gateway that answers all calls alike, and how many came.
func counted(t *testing.T, answer http.HandlerFunc) (string, *atomic.Int64) {
	t.Helper()
	var calls atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		calls.Add(1)
		answer(w, r)
	}))
	t.Cleanup(server.Close)
	return server.URL, &calls
}

func unavailable(outcome api.Outcome) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		writeProblem(w, api.Problem{Status: http.StatusServiceUnavailable, Code: api.CodeUnavailable, Outcome: outcome})
	}
}

// everyCall is all that changes something, and a read. Those that may not be sent twice begin with an exclamation mark.
func everyCall() map[string]func(context.Context, *lockclient.API) error {
	id, sequence, token := "r", int64(1), int64(34)
	plain := api.FencingToken{Token: 34}
	return map[string]func(context.Context, *lockclient.API) error{
		"read": func(ctx context.Context, a *lockclient.API) error { _, err := a.Lock(ctx, "a"); return err },
		"renewal": func(ctx context.Context, a *lockclient.API) error {
			_, err := a.Renew(ctx, "a", api.RenewRequest{})
			return err
		},
		"release": func(ctx context.Context, a *lockclient.API) error { return a.Release(ctx, "a", api.ReleaseRequest{}) },
		"acquire, repeatable": func(ctx context.Context, a *lockclient.API) error {
			_, err := a.Acquire(ctx, "a", api.AcquireRequest{RequestID: &id})
			return err
		},
		"campaign, repeatable": func(ctx context.Context, a *lockclient.API) error {
			_, err := a.Campaign(ctx, "a", api.CampaignRequest{RequestID: &id})
			return err
		},
		"resign":           func(ctx context.Context, a *lockclient.API) error { return a.Resign(ctx, "a", api.ResignRequest{}) },
		"keepalive":        func(ctx context.Context, a *lockclient.API) error { _, err := a.KeepSessionAlive(ctx, "s"); return err },
		"end of a session": func(ctx context.Context, a *lockclient.API) error { _, err := a.EndSession(ctx, "s"); return err },
		"numbered put": func(ctx context.Context, a *lockclient.API) error {
			_, err := a.Put(ctx, "a", "k", lockclient.Write{Token: numbered(34, 1)})
			return err
		},
		"numbered delete": func(ctx context.Context, a *lockclient.API) error {
			_, err := a.Delete(ctx, "a", "k", lockclient.Removal{Token: numbered(34, 1)})
			return err
		},
		"numbered transaction": func(ctx context.Context, a *lockclient.API) error {
			_, err := a.Transaction(ctx, api.TransactionRequest{Fences: []api.WriteToken{{Resource: "a", FencingToken: &token, Sequence: &sequence}}})
			return err
		},
		"! acquire": func(ctx context.Context, a *lockclient.API) error {
			_, err := a.Acquire(ctx, "a", api.AcquireRequest{})
			return err
		},
		"! campaign": func(ctx context.Context, a *lockclient.API) error {
			_, err := a.Campaign(ctx, "a", api.CampaignRequest{})
			return err
		},
		"! new session": func(ctx context.Context, a *lockclient.API) error {
			_, err := a.CreateSession(ctx, api.SessionRequest{})
			return err
		},
		"! put": func(ctx context.Context, a *lockclient.API) error {
			_, err := a.Put(ctx, "a", "k", lockclient.Write{Token: plain})
			return err
		},
		"! delete": func(ctx context.Context, a *lockclient.API) error {
			_, err := a.Delete(ctx, "a", "k", lockclient.Removal{Token: plain})
			return err
		},
		"! transaction": func(ctx context.Context, a *lockclient.API) error {
			_, err := a.Transaction(ctx, api.TransactionRequest{Fences: []api.WriteToken{{Resource: "a", FencingToken: &token}}})
			return err
		},
		"! break": func(ctx context.Context, a *lockclient.API) error {
			_, err := a.Break(ctx, "a", api.BreakRequest{})
			return err
		},
		"! put policy": func(ctx context.Context, a *lockclient.API) error {
			_, err := a.PutPolicy(ctx, "a", api.PolicyRequest{})
			return err
		},
		"! no policy": func(ctx context.Context, a *lockclient.API) error { return a.DeletePolicy(ctx, "a") },
	}
}

// Whether a call goes on to the next gateway depends on whether it may have been applied, and whether it may be
// applied twice.
func TestWhatFailsOver(t *testing.T) {
	for name, call := range everyCall() {
		repeatable := name[0] != '!'
		for what, test := range map[string]struct {
			first   http.HandlerFunc
			goesOn  bool
			doubted bool
		}{
			"not applied":      {unavailable(api.OutcomeNotApplied), true, false},
			"unknown":          {unavailable(api.OutcomeUnknown), repeatable, true},
			"no answer":        {hangUp, repeatable, name != "read"},
			"a proxy's answer": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(502) }, repeatable, name != "read"},
			"refused: it's his": {func(w http.ResponseWriter, _ *http.Request) {
				writeProblem(w, api.Problem{Status: 409, Code: api.CodeLockHeld})
			}, false, false},
		} {
			firstURL, firstCalls := counted(t, test.first)
			secondURL, secondCalls := counted(t, unavailable(api.OutcomeNotApplied))
			client := newClient(t, firstURL, lockclient.WithFailover(secondURL))
			err := call(t.Context(), client.API())
			if firstCalls.Load() != 1 || (secondCalls.Load() == 1) != test.goesOn {
				t.Errorf("%s, %s: %d and %d calls", name, what, firstCalls.Load(), secondCalls.Load())
			}
			if err == nil || errors.Is(err, lockclient.ErrOutcomeUnknown) != test.doubted {
				t.Errorf("%s, %s: %v", name, what, err)
			}
		}
	}
}

// A client stays with the gateway that works, and comes back to the others when that fails.
func TestTheClientStaysWithAGatewayThatWorks(t *testing.T) {
	var down atomic.Bool
	ready := func(w http.ResponseWriter, r *http.Request) {
		if down.Load() {
			unavailable(api.OutcomeNotApplied)(w, r)
			return
		}
		_, _ = w.Write([]byte(`{"status":"ready"}`))
	}
	working, workingCalls := counted(t, ready)
	last, lastCalls := counted(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"status":"ready"}`)) })
	dead := "http://" + closedAddress(t)
	client := newClient(t, dead, lockclient.WithFailover(working, last))
	for range 3 {
		check(t, client.API().Ready(t.Context()))
	}
	if workingCalls.Load() != 3 || lastCalls.Load() != 0 {
		t.Errorf("%d and %d calls", workingCalls.Load(), lastCalls.Load())
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	if err := client.API().Ready(cancelled); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	down.Store(true)
	for range 3 {
		check(t, client.API().Ready(t.Context()))
	}
	if workingCalls.Load() != 4 || lastCalls.Load() != 3 {
		t.Errorf("%d and %d calls", workingCalls.Load(), lastCalls.Load())
	}
}
