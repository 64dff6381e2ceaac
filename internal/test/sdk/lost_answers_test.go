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
