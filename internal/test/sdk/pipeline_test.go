package sdk

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/lockclient"
	"github.com/fencegate/fencegate/lockclient/admin"
	"github.com/fencegate/fencegate/lockclient/api"
)

// startPipeline starts a pipeline under a lease of its own, and closes it with the test.
func startPipeline(
	t *testing.T, client *lockclient.Client, lock string, opts ...lockclient.PipelineOption,
) (*lockclient.Pipeline, *lockclient.Lease) {
	t.Helper()
	lease := mustAcquire(t, client, lock, lockclient.WithTTL(time.Hour)) // longer than any machine needs
	p, err := lease.Pipeline(context.Background(), opts...)
	check(t, err)
	t.Cleanup(func() { _ = p.Close() })
	return p, lease
}

// added returns a write that must have been taken.
func added(w *lockclient.PendingWrite, err error) *lockclient.PendingWrite {
	if err != nil {
		panic(err)
	}
	return w
}

// idleConnections are those that the transport keeps.
var idleConnections = []goleak.Option{
	goleak.IgnoreAnyFunction("net/http.(*persistConn).readLoop"),
	goleak.IgnoreAnyFunction("net/http.(*persistConn).writeLoop"),
}

// The writes are applied in order, each once, by both versions of HTTP.
func TestPipeline(t *testing.T) {
	http2 := &http.Transport{Protocols: new(http.Protocols)}
	http2.Protocols.SetUnencryptedHTTP2(true)
	defer http2.CloseIdleConnections()
	for name, opts := range map[string][]lockclient.Option{
		"HTTP/1.1": nil, "HTTP/2": {lockclient.WithHTTPClient(&http.Client{Transport: http2})},
	} {
		client, lock := shared(t, opts...)
		before := goleak.IgnoreCurrent()
		var results []lockclient.BulkResult
		p, lease := startPipeline(t, client, lock+name, lockclient.PipelineWindow(100),
			lockclient.OnResult(func(r lockclient.BulkResult) { results = append(results, r) }))
		ctx := await.Context(t)
		const writes = 3000
		var pending []*lockclient.PendingWrite
		for i := range writes {
			pending = append(pending, added(p.Put(ctx, "k", fmt.Append(nil, i), lockclient.WithContentType("text/plain"))))
		}
		check(t, p.Flush(ctx))
		for i, w := range pending {
			result, err := w.Wait(ctx)
			if n := int64(i) + 1; err != nil || result.Version != n || *result.Sequence != n || w.Sequence() != n ||
				result.Replayed || result.FencingToken != lease.FencingToken() {
				t.Fatalf("%s: write %d returned %+v, %v", name, n, result, err)
			}
		}
		// After Flush the lease's own writes continue.
		if result, err := lease.Put(ctx, "k", []byte("own")); err != nil || *result.Sequence != writes+1 {
			t.Errorf("%s: the lease's own write returned %+v, %v", name, result, err)
		}
		result, err := added(p.PutJSON(ctx, "json", map[string]int{"a": 1})).Wait(ctx)
		if err != nil || *result.Sequence != writes+2 {
			t.Errorf("%s: PutJSON returned %+v, %v", name, result, err)
		}
		record, err := client.API().Get(ctx, lock+name, "json")
		if err != nil || string(record.Value) != `{"a":1}` || record.ContentType != "application/json" {
			t.Errorf("%s: the JSON record is %+v, %v", name, record, err)
		}
		check(t, second(added(p.PutJSON(ctx, "null", nil)).Wait(ctx)))
		check(t, second(lease.PutJSON(ctx, "null", nil)))
		conditional := second(client.API().Delete(ctx, lock, "null", lockclient.Write{IfNoneMatch: true}))
		wantErr(t, "a conditional Delete", conditional, lockclient.ErrInvalidRequest)
		check(t, p.Close())
		check(t, p.Close())
		wantErr(t, "Put after Close", second(p.Put(ctx, "k", nil)), lockclient.ErrInvalidRequest)
		for i, r := range results {
			if r.Err != nil || r.Index != int64(i) || r.Verdict.Line != int64(i)+1 {
				t.Fatalf("%s: result %d is %+v", name, i, r)
			}
		}
		if len(results) != writes+2 {
			t.Errorf("%s: OnResult was called %d times, expected %d", name, len(results), writes+2)
		}
		lease.ReleaseOnce()
		http2.CloseIdleConnections()
		if err := await.Nil(func() error { return goleak.Find(append(idleConnections, before)...) }); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A rejected write does not stop the writes after it.
func TestPipelineRejections(t *testing.T) {
	t.Parallel()
	client, lock := shared(t)
	p, lease := startPipeline(t, client, lock)
	ctx := await.Context(t)
	wants := []error{
		nil, lockclient.ErrVersionMismatch, lockclient.ErrNotFound, lockclient.ErrInvalidRequest, nil, nil,
	}
	writes := []*lockclient.PendingWrite{
		added(p.Put(ctx, "k", []byte("1"), lockclient.IfAbsent())),
		added(p.Put(ctx, "k", []byte("2"), lockclient.IfVersion(7))),
		added(p.Delete(ctx, "none")),
		added(p.Put(ctx, "k", []byte("{"), lockclient.WithContentType("application/json"))),
		added(p.Put(ctx, "k", []byte("3"), lockclient.IfVersion(1))),
		added(p.Delete(ctx, "k", lockclient.IfVersion(2))),
	}
	wantErr(t, "the first Flush", p.Flush(ctx), lockclient.ErrVersionMismatch)
	check(t, p.Flush(ctx))
	for i, w := range writes {
		if _, err := w.Wait(ctx); !errors.Is(err, wants[i]) || errors.Is(err, lockclient.ErrOutcomeUnknown) {
			t.Errorf("write %d returned %v, expected %v", i+1, err, wants[i])
		}
	}
	for what, err := range map[string]error{
		"a name with an empty segment":  second(p.Put(ctx, "a//b", nil)),
		"a resource with a dot segment": second(p.Delete(ctx, "k", lockclient.OnResource("a/../b"))),
	} {
		wantErr(t, what, err, lockclient.ErrInvalidName)
	}
	for what, err := range map[string]error{
		"a key that is no UTF-8":    second(p.Put(ctx, "\xff", nil)),
		"a precondition twice":      second(p.Put(ctx, "k", nil, lockclient.IfVersion(1), lockclient.IfAbsent())),
		"the version 0":             second(p.Put(ctx, "k", nil, lockclient.IfVersion(0))),
		"a value that is no JSON":   second(p.PutJSON(ctx, "k", func() {})),
		"a delete of an absent one": second(p.Delete(ctx, "k", lockclient.IfAbsent())),
		"a window of 0":             second(lease.Pipeline(ctx, lockclient.PipelineWindow(0))),
		"a window of 65537":         second(lease.Pipeline(ctx, lockclient.PipelineWindow(65537))),
		"no bytes":                  second(lease.Pipeline(ctx, lockclient.PipelineBytes(0))),
		"no time":                   second(lease.Pipeline(ctx, lockclient.PipelineRetryFor(0))),
	} {
		wantErr(t, what, err, lockclient.ErrInvalidRequest)
	}
}

// Under a Subtree lease a pipeline writes to all resources below it.
func TestPipelineOnResources(t *testing.T) {
	t.Parallel()
	client, lock := shared(t)
	ctx := await.Context(t)
	p, err := mustAcquire(t, client, lock, lockclient.Subtree()).Pipeline(ctx)
	check(t, err)
	for i := range 300 {
		added(p.Put(ctx, "k", []byte("v"), lockclient.OnResource(fmt.Sprintf("%s/%d", lock, i%3))))
	}
	check(t, p.Close())
	for i := range 3 {
		wantVersion(t, client, fmt.Sprintf("%s/%d", lock, i), "k", 100)
	}
}

// After the loss of the lease, writes that were sent are rejected, and further ones are not sent.
func TestPipelineLosesTheLease(t *testing.T) {
	t.Parallel()
	client, lock := shared(t)
	ctx := await.Context(t)
	p, lease := startPipeline(t, client, lock)
	check(t, second(added(p.Put(ctx, "k", []byte("1"))).Wait(ctx)))
	mustBreak(t, client, lock)
	mustAcquire(t, client, lock, lockclient.WithLeaseOwner("other"))
	_, err := added(p.Put(ctx, "k", []byte("2"))).Wait(ctx)
	if !errors.Is(err, lockclient.ErrTokenStale) || errors.Is(err, lockclient.ErrOutcomeUnknown) {
		t.Errorf("the write that was sent returned %v, expected ErrTokenStale alone", err)
	}
	wantErr(t, "the next Put", second(p.Put(ctx, "k", []byte("3"))), lockclient.ErrLeaseLost)
	wantErr(t, "another pipeline", second(lease.Pipeline(ctx)), lockclient.ErrLeaseLost)
	wantErr(t, "Close", p.Close(), lockclient.ErrTokenStale)
}

// Many goroutines share one pipeline.
func TestPipelineIsShared(t *testing.T) {
	t.Parallel()
	client, lock := shared(t)
	p, _ := startPipeline(t, client, lock, lockclient.PipelineWindow(7))
	ctx := await.Context(t)
	var writing sync.WaitGroup
	for range 8 {
		writing.Go(func() {
			for range 50 {
				w, err := p.Put(ctx, "k", []byte("v"))
				if err == nil {
					_, err = w.Wait(ctx)
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	writing.Wait()
	wantVersion(t, client, lock, "k", 400)
}

// A pipeline ends with its ctx, and with its client. Writes that were not sent were not applied.
func TestPipelineEnds(t *testing.T) {
	t.Parallel()
	for what, end := range map[string]func(*lockclient.Client, context.CancelFunc){
		"ctx":    func(_ *lockclient.Client, cancel context.CancelFunc) { cancel() },
		"client": func(client *lockclient.Client, _ context.CancelFunc) { client.Close() },
	} {
		relay := newRelay(t)
		client := newClient(t, relay.url, lockclient.WithAnswerTimeout(time.Hour))
		lease := mustAcquire(t, client, "pipeline/ends/"+what, lockclient.WithTTL(time.Minute))
		relay.begin(answersHeld)
		ctx, cancel := context.WithCancel(await.Context(t))
		p, err := lease.Pipeline(ctx, lockclient.PipelineWindow(2))
		check(t, err)
		held := []*lockclient.PendingWrite{added(p.Put(ctx, "k", []byte("1"))), added(p.Put(ctx, "k", []byte("2")))}
		short, cancelShort := context.WithTimeout(ctx, 50*time.Millisecond)
		wantUnavailable(t, what+": no room", second(p.Put(short, "k", []byte("3"))), api.OutcomeNotApplied)
		cancelShort()
		end(client, cancel)
		for _, w := range held {
			err := second(w.Wait(await.Context(t)))
			if what == "ctx" {
				wantCanceled(t, what, err, api.OutcomeNotApplied)
			} else {
				wantErr(t, what, err, lockclient.ErrClosed)
			}
		}
		if _, err := p.Put(await.Context(t), "k", nil); err == nil {
			t.Errorf("%s: a write was taken after the end", what)
		}
		_ = p.Close()
		cancel()
		relay.begin(calm)
	}
}

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
