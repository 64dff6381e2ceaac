package sdk

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/internal/test/testenv/network"
	"github.com/fencegate/fencegate/internal/test/testenv/process"
	"github.com/fencegate/fencegate/lockclient"
	"github.com/fencegate/fencegate/lockclient/admin"
	"github.com/fencegate/fencegate/lockclient/api"
)

func TestLease(t *testing.T) {
	t.Parallel()
	client, lock := shared(t, lockclient.WithOwner("worker-1"))
	ctx := await.Context(t)
	lease := mustAcquire(t, client, lock, lockclient.WithTTL(time.Minute))
	if lease.Name() != lock || lease.Owner() != "worker-1" || lease.FencingToken() < 1 || lease.ID() == "" ||
		lease.Info().TTLMS != 60_000 {
		t.Errorf("the lease is %+v", lease.Info())
	}
	if text := fmt.Sprintf("%v %+v", lease, lease); strings.Contains(text, lease.ID()) || !strings.Contains(text, lock) {
		t.Errorf("it prints as %s, expected the lock and no secret", text)
	}
	if left := lease.ExpiresIn(); left <= 0 || left > 60*time.Second*99/100 {
		t.Errorf("it is valid for %v, expected at most 99%% of its TTL", left)
	}
	if lease.Err() != nil || !lease.Valid() || lease.Context().Err() != nil || lease.HeartbeatErr() != nil {
		t.Errorf("a new lease has the error %v", lease.Err())
	}
	before := lease.ExpiresIn()
	if err := lease.RenewWithTTL(ctx, 2*time.Minute); err != nil || lease.ExpiresIn() < before+30*time.Second {
		t.Errorf("after a renewal to a longer TTL it is valid for %v, %v", lease.ExpiresIn(), err)
	}
	if err := lease.RenewWithTTL(ctx, 10*time.Second); err != nil || lease.ExpiresIn() > 10*time.Second {
		t.Errorf("after a renewal to a shorter TTL it is valid for %v, %v", lease.ExpiresIn(), err)
	}
	other, _ := shared(t)
	third, _ := shared(t)
	if other.Owner() == third.Owner() || strings.Count(other.Owner(), ":") != 2 {
		t.Errorf("the default owners are %q and %q, expected unique ones", other.Owner(), third.Owner())
	}
}

func TestRelease(t *testing.T) {
	t.Parallel()
	client, lock := shared(t)
	ctx := await.Context(t)
	lease := mustAcquire(t, client, lock)
	derived, cancel := context.WithCancel(lease.Context())
	defer cancel()
	for range 3 {
		check(t, lease.Release(ctx))
	}
	lease.ReleaseOnce()
	for what, ended := range map[string]context.Context{"the context": lease.Context(), "a derived context": derived} {
		wantErr(t, what, causeOf(t, what, ended), lockclient.ErrLeaseReleased)
		wantErr(t, "Err of "+what, ended.Err(), context.Canceled)
	}
	if lease.ExpiresIn() != 0 {
		t.Error("a released lease is valid")
	}
	wantErr(t, "Renew", lease.Renew(ctx), lockclient.ErrLeaseReleased)
	wantErr(t, "Put", second(lease.Put(ctx, "k", nil)), lockclient.ErrTokenStale)
	(*lockclient.Lease)(nil).ReleaseOnce()
}

func TestCloseEndsLeases(t *testing.T) {
	t.Parallel()
	client, lock := shared(t)
	ctx := await.Context(t)
	lease := mustAcquire(t, client, lock)
	client.Close()
	client.Close()
	for what, err := range map[string]error{
		"the cause":  context.Cause(lease.Context()),
		"Err":        lease.Err(),
		"Acquire":    second(client.Acquire(ctx, lock)),
		"NewSession": second(client.NewSession(ctx)),
		"Watch":      second(client.Watch(ctx, lock)),
	} {
		wantErr(t, what, err, lockclient.ErrClosed)
	}
	check(t, second(lease.Put(ctx, "k", []byte("v"))))
	check(t, lease.Release(ctx))
}

// limitHold sets the max_hold_ms of the lock's policy.
func limitHold(t *testing.T, client *lockclient.Client, lock string, limit time.Duration) {
	t.Helper()
	ms := limit.Milliseconds()
	check(t, second(admin.New(client).PutPolicy(await.Context(t), lock, api.PolicyRequest{MaxHoldMS: &ms})))
	t.Cleanup(func() { _ = admin.New(client).DeletePolicy(context.Background(), lock) })
}

// A lease that is renewed all the time ends at its policy's max_hold_ms, before a TTL that is longer, and Do returns that.
func TestDoEndsAtMaxHold(t *testing.T) {
	t.Parallel()
	client, lock := shared(t)
	ctx := await.Context(t)
	const limit = 3 * time.Second
	limitHold(t, client, lock, limit)
	failures := make(chan error, 1000)
	failed := lockclient.OnHeartbeatError(func(err error) { failures <- err })
	err := client.Do(ctx, lock, func(ctx context.Context, lease *lockclient.Lease) error {
		if left := lease.ExpiresIn(); left > limit {
			t.Errorf("it is valid for %v, expected at most %v", left, limit)
		}
		cause := causeOf(t, "the context", ctx)
		wantErr(t, "the cause", cause, lockclient.ErrLeaseLost)
		wantErr(t, "Err", lease.Err(), lockclient.ErrLeaseLost)
		if lease.ExpiresIn() != 0 {
			t.Errorf("it is valid for %v after its end", lease.ExpiresIn())
		}
		// The context ended a little before the lease. The next lease is granted at its end.
		next, err := client.Acquire(context.WithoutCancel(ctx), lock, lockclient.WithWait(time.Minute))
		check(t, err)
		next.ReleaseOnce()
		return cause
	}, lockclient.WithTTL(time.Minute), lockclient.HeartbeatEvery(50*time.Millisecond), failed)
	wantErr(t, "the error of Do", err, lockclient.ErrLeaseLost)
	for !errors.Is(err, lockclient.ErrLeaseLost) || len(failures) > 0 {
		err = <-failures
	}
	wantErr(t, "the last heartbeat's error", err, lockclient.ErrLeaseLost)
}

// A lease in a session ends at max_hold_ms, counted from its grant, and the session continues.
func TestMaxHoldInASession(t *testing.T) {
	t.Parallel()
	client, lock := shared(t)
	ctx := await.Context(t)
	limitHold(t, client, lock, 3*time.Second)
	session, err := client.NewSession(ctx)
	check(t, err)
	defer session.Close(ctx)
	first, err := session.Acquire(ctx, lock)
	check(t, err)
	next, err := session.Acquire(ctx, lock, lockclient.WithWait(time.Minute))
	check(t, err)
	if next.Err() != nil || next.ExpiresIn() > 3*time.Second {
		t.Errorf("the second lease is valid for %v, %v, expected at most 3s", next.ExpiresIn(), next.Err())
	}
	wantErr(t, "the first cause", causeOf(t, "the first context", first.Context()), lockclient.ErrLeaseLost)
	wantErr(t, "the second cause", causeOf(t, "the second context", next.Context()), lockclient.ErrLeaseLost)
	check(t, session.Err())
}

func TestSession(t *testing.T) {
	t.Parallel()
	client, lock := shared(t)
	ctx := await.Context(t)
	session, err := client.NewSession(ctx, lockclient.WithTTL(6*time.Second), lockclient.WithLeaseOwner("worker"),
		lockclient.WithMetadata(map[string]int{"pod": 1}))
	check(t, err)
	info := session.Info()
	if session.Owner() != "worker" || session.ID() == "" || info.TTLMS != 6000 || session.ExpiresIn() <= 0 {
		t.Errorf("the session is %+v", info)
	}
	one, err := session.Acquire(ctx, lock+"/1")
	check(t, err)
	two, err := client.Acquire(ctx, lock+"/2", lockclient.InSession(session), lockclient.WithLeaseOwner("ignored"))
	check(t, err)
	if one.Owner() != "worker" || two.Owner() != "worker" || one.ExpiresIn() > 6*time.Second {
		t.Errorf("its leases are %+v and %+v", one.Info(), two.Info())
	}
	wantErr(t, "Renew", one.Renew(ctx), lockclient.ErrInvalidRequest)
	await.True(t, "heartbeats that carry both leases over the TTL", func() bool {
		state, err := client.API().Session(ctx, session.ID())
		return err == nil && state.ExpiresAt.After(info.ExpiresAt.Add(7*time.Second)) && *state.Leases == 2
	})
	for what, err := range map[string]error{
		"the session": session.Err(), "lease 1": one.Err(), "lease 2": two.Err(),
		"the heartbeat": session.HeartbeatErr(), "lease 1's heartbeat": one.HeartbeatErr(),
	} {
		if err != nil {
			t.Errorf("%s has the error %v", what, err)
		}
	}
	check(t, one.Release(ctx))
	check(t, second(two.Put(ctx, "k", nil)))
	check(t, session.Close(ctx))
	check(t, session.Close(ctx))
	wantErr(t, "the session", causeOf(t, "the session", session.Context()), lockclient.ErrLeaseReleased)
	wantErr(t, "the lease", causeOf(t, "the lease", two.Context()), lockclient.ErrLeaseReleased)
	wantErr(t, "Err of the lease", two.Err(), lockclient.ErrLeaseReleased)
	wantFree(t, client, lock+"/2")
	_, err = session.Acquire(ctx, lock+"/3")
	if !errors.Is(err, lockclient.ErrLeaseLost) && !errors.Is(err, lockclient.ErrLeaseReleased) {
		t.Errorf("Acquire in a closed session returned %v", err)
	}
}

// The leases of a session are lost with it.
func TestLostSession(t *testing.T) {
	t.Parallel()
	client, lock := shared(t)
	ctx := await.Context(t)
	failures := make(chan error, 10)
	session, err := client.NewSession(ctx, lockclient.WithTTL(time.Hour),
		lockclient.HeartbeatEvery(20*time.Millisecond),
		lockclient.OnHeartbeatError(func(err error) { failures <- err }))
	check(t, err)
	lease, err := session.Acquire(ctx, lock)
	check(t, err)
	check(t, second(client.API().EndSession(ctx, session.ID())))
	wantErr(t, "the cause", causeOf(t, "the lease", lease.Context()), lockclient.ErrLeaseLost)
	wantErr(t, "Err of the context", lease.Context().Err(), lockclient.ErrLeaseLost)
	wantErr(t, "OnHeartbeatError", await.Receive(t, "a failed heartbeat", failures), lockclient.ErrLeaseLost)
	wantErr(t, "Acquire", second(session.Acquire(ctx, lock)), lockclient.ErrLeaseLost)
	wantErr(t, "Put", second(lease.Put(ctx, "k", nil)), lockclient.ErrTokenStale)
}

// The writes of one lease keep their order, and those of several leases don't deadlock.
func TestWritesAreInOrder(t *testing.T) {
	t.Parallel()
	_, lock := shared(t)
	link := network.NewProxy(gatewayURL)
	url, _ := serve(t, link.ServeHTTP)
	t.Cleanup(link.Close)
	client := newClient(t, url)
	ctx := await.Context(t)
	leases := []*lockclient.Lease{mustAcquire(t, client, lock+"/a"), mustAcquire(t, client, lock+"/b")}
	link.Harm(network.Harm{Faults: []network.Fault{network.AnswerLost, network.None, network.RequestLost, network.None,
		network.None, network.AnswerCut, network.None, network.None, network.AnswerLost}})
	var writing sync.WaitGroup
	for i := range 20 {
		// ops put a record under each lease.
		ops := []api.Op{lockclient.PutOp("k", fmt.Append(nil, i), ""), lockclient.PutOp("k", fmt.Append(nil, i), "")}
		ops[0].Resource, ops[1].Resource = leases[0].Name(), leases[1].Name()
		writing.Go(func() {
			var err error
			switch i % 4 {
			case 0:
				_, err = leases[0].Put(ctx, "k", fmt.Append(nil, i))
			case 1:
				_, err = leases[1].PutJSON(ctx, "k", i)
			case 2:
				_, err = client.Transact(ctx, []*lockclient.Lease{leases[0], leases[1]}, ops...)
			default:
				_, err = client.Transact(ctx, []*lockclient.Lease{leases[1], leases[0], leases[1]}, ops...)
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	writing.Wait()
	for _, lease := range leases {
		fence, err := admin.New(client).Fence(ctx, lease.Name())
		if err != nil || fence.LastToken != lease.FencingToken() || fence.LastSequence != 15 {
			t.Errorf("the fence is %+v, %v, expected 15 writes", fence, err)
		}
	}
}

// Each call that retries while no gateway serves reports every failed attempt to the hook, and to the log once in a
// while.
func TestRetriesAreReported(t *testing.T) {
	t.Parallel()
	for what, call := range map[string]func(context.Context, *lockclient.Client) error{
		"Elect": func(ctx context.Context, client *lockclient.Client) error {
			return second(client.Elect(ctx, "a"))
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
