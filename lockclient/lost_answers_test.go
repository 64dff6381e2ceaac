package lockclient_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/internal/testenv/await"
	"github.com/fencegate/fencegate/internal/testenv/network"
	"github.com/fencegate/fencegate/internal/testenv/process"
	"github.com/fencegate/fencegate/lockclient"
	"github.com/fencegate/fencegate/lockclient/admin"
)

// However answers are lost, an acquire makes one lease, and its client has it.
func TestLostAnswersOfAcquire(t *testing.T) {
	t.Parallel()
	link, client, lock := lossy(t)
	ctx := await.Context(t)
	for round := range 3 {
		name := fmt.Sprintf("%s/%d", lock, round)
		link.harm("/acquire", losses...)
		lease := mustAcquire(t, client, name)
		if got := link.seen(); got != 5 {
			t.Errorf("it was sent %d times, expected 5: four fail", got)
		}
		state, err := client.API().Lock(ctx, name)
		token := lease.FencingToken()
		if err != nil || len(state.Holders) != 1 || state.FencingToken != token || state.Holders[0].FencingToken != token {
			t.Errorf("the lock is %+v, %v, expected one lease with token %d", state, err, token)
		}
		check(t, second(lease.Put(ctx, "k", []byte("v"))))
		link.harm("/release", losses...)
		check(t, lease.Release(ctx))
		if state, err := client.API().Lock(ctx, name); err != nil || state.State != "free" || state.FencingToken != token {
			t.Errorf("the lock is %+v, %v, expected it free with token %d", state, err, token)
		}
	}
}

// The client releases a lease whose answer the caller did not wait for.
func TestAbandonedAcquire(t *testing.T) {
	t.Parallel()
	link, client, lock := lossy(t)
	link.harm("/acquire", slices.Repeat([]network.Fault{network.AnswerLost}, 5)...)
	_, err := client.Acquire(await.Context(t), lock, lockclient.WithTTL(time.Hour))
	wantErr(t, "Acquire without an answer", err, lockclient.ErrUnavailable)
	wantErr(t, "Acquire without an answer", err, lockclient.ErrOutcomeUnknown)
	await.True(t, "the release of the lease", func() bool {
		state, err := client.API().Lock(t.Context(), lock)
		return err == nil && state.State == "free"
	})
	link.harm("/acquire", network.RequestHeld)
	ctx, cancel := context.WithCancel(await.Context(t))
	var acquiring sync.WaitGroup
	acquiring.Go(func() {
		_, err := client.Acquire(ctx, lock, lockclient.WithTTL(time.Hour))
		wantCanceled(t, "a canceled Acquire", err, api.OutcomeUnknown)
	})
	link.await(1, "the acquire")
	cancel()
	acquiring.Wait()
	link.await(2, "the request that finds out about the lease")
}

// An answer may arrive after its lease was replaced. The times in it don't make the lease valid.
func TestLateGrant(t *testing.T) {
	t.Parallel()
	link, client, lock := lossy(t)
	direct, _ := shared(t)
	ctx := await.Context(t)
	link.harm("/acquire", network.AnswerHeld)
	var acquiring sync.WaitGroup
	acquiring.Go(func() {
		lease, err := client.Acquire(ctx, lock, lockclient.WithTTL(300*time.Millisecond))
		if !errors.Is(err, lockclient.ErrLeaseLost) || lease != nil {
			t.Errorf("got %v, %v, expected ErrLeaseLost", lease, err)
		}
	})
	link.await(1, "the acquire")
	await.True(t, "the expiry of the lease", func() bool {
		state, err := direct.API().Lock(ctx, lock)
		return err == nil && state.State == "expired"
	})
	newer := mustAcquire(t, direct, lock)
	link.Release(t.Context())
	acquiring.Wait()
	check(t, newer.Release(ctx))

	// A lease that is not replaced and has not expired is renewed before Acquire returns it.
	link.harm("/acquire", network.AnswerHeld)
	acquiring.Go(func() {
		lease, err := client.Acquire(ctx, lock, lockclient.WithTTL(30*time.Second))
		if err != nil || lease.ExpiresIn() < 26*time.Second {
			t.Errorf("got %v, valid for %v, expected a renewed lease", err, lease.ExpiresIn())
			return
		}
		lease.ReleaseOnce()
	})
	link.await(1, "the acquire")
	time.Sleep(4 * time.Second) // more than the tenth of the TTL after which it is renewed
	link.Release(t.Context())
	acquiring.Wait()
}

// However answers are lost, a write is applied once: the versions of a record count its writes.
func TestLostAnswersOfWrites(t *testing.T) {
	t.Parallel()
	link, client, lock := lossy(t)
	ctx := await.Context(t)
	lease := mustAcquire(t, client, lock)
	first, err := lease.Put(ctx, "k", []byte("1"))
	check(t, err)
	link.harm("/k", losses...)
	next, err := lease.Put(ctx, "k", []byte("2"), lockclient.IfVersion(first.Version))
	check(t, err)
	if link.seen() != 5 || !next.Replayed || *next.Sequence != 2 || next.Version != first.Version+1 {
		t.Errorf("after %d calls: %+v, expected the second version after 5", link.seen(), next)
	}
	link.harm("/transactions", losses...)
	put, other := lockclient.PutOp("k", []byte("3"), "text/plain"), lockclient.PutOp("other", nil, "")
	result, err := lease.Transaction(ctx, put, other)
	check(t, err)
	if link.seen() != 5 || !result.Replayed || len(result.Results) != 2 {
		t.Errorf("after %d calls: %+v, expected a replay after 5", link.seen(), result)
	}
	record, err := client.API().Get(ctx, lock, "k")
	if err != nil || string(record.Value) != "3" || record.ContentType != "text/plain" || *record.Token.Sequence != 3 {
		t.Errorf("the record is %+v, %v, expected the third write", record, err)
	}
	link.harm("/k", losses...)
	if deleted, err := lease.Delete(ctx, "k"); err != nil || !deleted.Replayed {
		t.Errorf("Delete returned %+v, %v, expected a replay", deleted, err)
	}
}

// A rejection after a lost answer matches ErrOutcomeUnknown if a newer holder's writes hide what happened.
func TestUnknownOutcome(t *testing.T) {
	t.Parallel()
	link, client, lock := lossy(t)
	direct, _ := shared(t)
	ctx := await.Context(t)
	for what, test := range map[string]struct {
		fault   network.Fault
		written bool // by the newer holder
		unknown bool
	}{
		"applied, and overwritten":     {network.AnswerLost, true, true},
		"lost, and written by another": {network.RequestLost, true, true},
		"lost, and not written since":  {network.RequestLost, false, false},
	} {
		lease := mustAcquire(t, client, lock)
		link.harm("/k", test.fault, network.RequestHeld)
		var writing sync.WaitGroup
		var first error
		writing.Go(func() { _, first = lease.Put(ctx, "k", []byte("old")) })
		link.await(2, "the second attempt, which is held")
		mustBreak(t, direct, lock)
		newer := mustAcquire(t, direct, lock)
		if test.written {
			check(t, second(newer.Put(ctx, "k", []byte("new"))))
		}
		link.Release(t.Context())
		writing.Wait()
		wantErr(t, what, first, lockclient.ErrTokenStale)
		if errors.Is(first, lockclient.ErrOutcomeUnknown) != test.unknown {
			t.Errorf("%s: %v matches ErrOutcomeUnknown: %t", what, first, !test.unknown)
		}
		newer.ReleaseOnce()
	}
}

// The writes of one lease keep their order, and those of several leases don't deadlock.
func TestWritesAreInOrder(t *testing.T) {
	t.Parallel()
	link, client, lock := lossy(t)
	ctx := await.Context(t)
	leases := []*lockclient.Lease{mustAcquire(t, client, lock+"/a"), mustAcquire(t, client, lock+"/b")}
	link.harm("", network.AnswerLost, network.None, network.RequestLost, network.None, network.None,
		network.AnswerCut, network.None, network.None, network.AnswerLost)
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

// A heartbeat survives an outage that is shorter than the TTL, and reports each failure.
func TestHeartbeatSurvivesAnOutage(t *testing.T) {
	t.Parallel()
	link, client, lock := lossy(t)
	failures := make(chan error, 100)
	lease := mustAcquire(t, client, lock, lockclient.WithTTL(20*time.Second),
		lockclient.HeartbeatEvery(50*time.Millisecond),
		lockclient.OnHeartbeatError(func(err error) { failures <- err }))
	link.harm("/renew", losses...)
	await.True(t, "two heartbeats after four that fail", func() bool {
		return link.seen() >= 6 && lease.HeartbeatErr() == nil
	})
	if len(failures) != 4 {
		t.Errorf("%d failures were reported, expected 4", len(failures))
	}
	wantErr(t, "OnHeartbeatError", <-failures, lockclient.ErrUnavailable)
	check(t, lease.Err())
}

// An outage that is longer than the TTL ends the context.
func TestHeartbeatEndsWithTheLease(t *testing.T) {
	t.Parallel()
	link, client, lock := lossy(t)
	lease := mustAcquire(t, client, lock, lockclient.WithTTL(2*time.Second))
	outage := make([]network.Fault, 10_000)
	for i := range outage {
		outage[i] = []network.Fault{network.RequestHeld, network.RequestLost, network.BadGateway}[i%3]
	}
	link.harm("/renew", outage...)
	// A renewal whose answer is lost does not count.
	wantErr(t, "the cause", causeOf(t, "the context", lease.Context()), lockclient.ErrLeaseLost)
	await.True(t, "the heartbeat's ErrLeaseLost", func() bool {
		return errors.Is(lease.HeartbeatErr(), lockclient.ErrLeaseLost)
	})
}

// The retries end if no gateway answers.
func TestRetriesEnd(t *testing.T) {
	t.Parallel()
	client := newClient(t, "http://"+closedAddress)
	ctx := await.Context(t)
	_, err := client.AcquireWithRetry(ctx, "a", lockclient.RetryPolicy{Attempts: 3, Base: 1, Max: 1})
	if !errors.Is(err, lockclient.ErrUnavailable) || errors.Is(err, lockclient.ErrOutcomeUnknown) {
		t.Errorf("AcquireWithRetry returned %v, expected ErrUnavailable alone", err)
	}
	wantErr(t, "Acquire", second(client.Acquire(ctx, "a")), lockclient.ErrUnavailable)
	short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	if _, err := client.Acquire(short, "a", lockclient.WithWait(time.Hour)); err == nil || short.Err() == nil {
		t.Errorf("a waiting Acquire returned %v, expected an error at the end of ctx", err)
	}
}

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
