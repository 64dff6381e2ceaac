package lockclient_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/internal/testenv/await"
	"github.com/fencegate/fencegate/lockclient"
	"github.com/fencegate/fencegate/lockclient/admin"
)

// When all verdicts of a stream are lost, the certain results are found: an unconditional put was applied if the record
// shows a later write, and the last write is a replay. All others are unknown.
func TestPipelineVerdictsLost(t *testing.T) {
	t.Parallel()
	relay := newRelay(t)
	direct, lock := shared(t)
	ctx := await.Context(t)
	p, lease := startPipeline(t, newClient(t, relay.url), lock)
	check(t, second(lease.Put(ctx, "old", []byte("0"))))
	relay.begin(answersLost)
	writes := []*lockclient.PendingWrite{
		added(p.Put(ctx, "a", []byte("1"))),
		added(p.Put(ctx, "b", []byte("2"), lockclient.IfAbsent())),
		added(p.Put(ctx, "b", []byte("3"), lockclient.IfVersion(99))), // rejected
		added(p.Delete(ctx, "old")),
		added(p.Delete(ctx, "none")), // rejected
		added(p.Put(ctx, "a", []byte("4"))),
		added(p.Put(ctx, "a", []byte("5"))),
	}
	awaitValue(t, direct, lock, "a", "5")
	relay.begin(calm)
	for i, want := range []struct {
		version int64
		unknown bool
	}{{version: 0}, {unknown: true}, {unknown: true}, {unknown: true}, {unknown: true}, {version: 0}, {version: 6}} {
		result, err := writes[i].Wait(ctx)
		switch {
		case want.unknown && (!errors.Is(err, lockclient.ErrOutcomeUnknown) || !errors.Is(err, lockclient.ErrTokenStale)):
			t.Errorf("write %d returned %+v, %v, expected an unknown outcome", i+1, result, err)
		case !want.unknown && (err != nil || !result.Replayed || result.Version != want.version ||
			*result.Sequence != int64(i)+2):
			t.Errorf("write %d returned %+v, %v, expected a replay with version %d", i+1, result, err, want.version)
		}
	}
	wantVersion(t, direct, lock, "a", 6)
	wantErr(t, "Close", p.Close(), lockclient.ErrOutcomeUnknown)
}

// A rejected put whose verdict was lost does not count as applied because a later write was admitted: the policy may
// have changed between the two.
func TestPipelineVerdictsLostWhileThePolicyChanges(t *testing.T) {
	t.Parallel()
	relay := newRelay(t)
	direct, lock := shared(t)
	ctx := await.Context(t)
	p, _ := startPipeline(t, newClient(t, relay.url), lock)
	mustBreak(t, direct, lock)
	relay.begin(answersLost)
	rejected := added(p.Put(ctx, "rejected", []byte("1")))
	await.True(t, "the rejection of the first put", func() bool {
		page, err := admin.New(direct).Rejections(ctx, admin.RejectionsQuery{Resource: lock})
		return err == nil && len(page.Rejections) == 1
	})
	check(t, second(admin.New(direct).PutPolicy(ctx, lock, api.PolicyRequest{Authority: "external"})))
	stored := added(p.Put(ctx, "overwritten", []byte("2")))
	last := added(p.Put(ctx, "overwritten", []byte("3")))
	awaitValue(t, direct, lock, "overwritten", "3")
	relay.begin(calm)
	_, err := rejected.Wait(ctx)
	wantErr(t, "the rejected put", err, lockclient.ErrTokenStale)
	wantErr(t, "the rejected put", err, lockclient.ErrOutcomeUnknown)
	for _, w := range []*lockclient.PendingWrite{stored, last} {
		if result, err := w.Wait(ctx); err != nil || !result.Replayed {
			t.Errorf("an applied put returned %+v, %v, expected a replay", result, err)
		}
	}
	wantErr(t, "Get of the rejected put", second(direct.API().Get(ctx, lock, "rejected")), lockclient.ErrNotFound)
}

// Wherever a stream is cut, every write is applied exactly once, and succeeds.
func TestPipelineCuts(t *testing.T) {
	t.Parallel()
	relay := newRelay(t)
	direct, lock := shared(t)
	ctx := await.Context(t)
	cuts := lockclient.OnResult(func(lockclient.BulkResult) {
		if rand.IntN(60) == 0 {
			relay.cut()
		}
	})
	p, _ := startPipeline(t, newClient(t, relay.url), lock, lockclient.PipelineWindow(50), cuts)
	const writes = 1500
	var pending []*lockclient.PendingWrite
	for i := range writes {
		pending = append(pending, added(p.Put(ctx, "k", fmt.Append(nil, i))))
	}
	check(t, p.Close())
	for i, w := range pending {
		result, err := w.Wait(ctx)
		if err != nil || result.Version != int64(i)+1 && result.Version != 0 {
			t.Fatalf("write %d returned %+v, %v", i+1, result, err)
		}
	}
	wantVersion(t, direct, lock, "k", writes)
}

// Through a network that cuts, delays and half-closes, every write is applied exactly once.
func TestPipelineToxicNetwork(t *testing.T) {
	t.Parallel()
	url, calm := toxicNetwork(t)
	direct, lock := shared(t)
	client := newClient(t, url, lockclient.WithAnswerTimeout(2*time.Second))
	ctx := await.Context(t)
	lease := mustAcquire(t, client, lock, lockclient.WithWait(time.Minute), lockclient.WithTTL(time.Minute))
	p, err := lease.Pipeline(ctx, lockclient.PipelineWindow(20))
	check(t, err)
	const writes = 600
	for i := range writes {
		added(p.Put(ctx, "k", fmt.Append(nil, i)))
	}
	calm()
	check(t, p.Close())
	wantVersion(t, direct, lock, "k", writes)
}

// A pipeline continues at the next gateway when one is killed, freezes, or shuts down.
func TestPipelineFailover(t *testing.T) {
	t.Parallel()
	for name, signal := range map[string]syscall.Signal{
		"killed": syscall.SIGKILL, "frozen": syscall.SIGSTOP, "shut down": syscall.SIGTERM,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			firstGateway, secondGateway, client := pair(t, lockclient.WithAnswerTimeout(time.Second))
			ctx := await.Context(t)
			p, _ := startPipeline(t, client, "job", lockclient.PipelineWindow(100))
			const writes = 2000
			for i := range writes {
				if i == writes/2 {
					check(t, firstGateway.Signal(signal))
				}
				added(p.Put(ctx, "k", fmt.Append(nil, i)))
			}
			check(t, p.Flush(ctx))
			check(t, p.Close())
			wantVersion(t, newClient(t, secondGateway.URL), "job", "k", writes)
			if signal == syscall.SIGSTOP {
				check(t, firstGateway.Signal(syscall.SIGCONT))
			}
		})
	}
}

// The caller may stop waiting for a write, which stays in the pipeline.
func TestPipelineWaitIsCanceled(t *testing.T) {
	t.Parallel()
	relay := newRelay(t)
	_, lock := shared(t)
	p, _ := startPipeline(t, newClient(t, relay.url), lock)
	relay.begin(answersHeld)
	ctx, cancel := context.WithCancel(await.Context(t))
	w := added(p.Put(ctx, "k", []byte("1")))
	cancel()
	wantErr(t, "Wait", second(w.Wait(ctx)), context.Canceled)
	wantErr(t, "Flush", p.Flush(ctx), context.Canceled)
	relay.begin(calm)
	check(t, second(w.Wait(await.Context(t))))
}
