package lockclient_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/lockclient"
)

// pipeline is one under a lease of its own, closed with the test.
func pipeline(t *testing.T, client *lockclient.Client, lock string, opts ...lockclient.PipelineOption) (*lockclient.Pipeline, *lockclient.Lease) {
	t.Helper()
	lease, err := client.Acquire(patient(t), lock, lockclient.WithTTL(time.Minute))
	check(t, err)
	p, err := lease.Pipeline(context.Background(), opts...)
	check(t, err)
	t.Cleanup(func() {
		_ = p.Close()
		lease.ReleaseOnce()
	})
	return p, lease
}

// sent gives a write that must have been taken.
func sent(w *lockclient.PendingWrite, err error) *lockclient.PendingWrite {
	if err != nil {
		panic(err)
	}
	return w
}

// Many writes go without waiting for each, in order, each once, over either version of HTTP.
func TestPipeline(t *testing.T) {
	http2 := &http.Transport{Protocols: new(http.Protocols)}
	http2.Protocols.SetUnencryptedHTTP2(true)
	defer http2.CloseIdleConnections()
	for name, opts := range map[string][]lockclient.Option{"HTTP/1.1": nil, "HTTP/2": {lockclient.WithHTTPClient(&http.Client{Transport: http2})}} {
		client, lock := shared(t, opts...)
		before := goleak.IgnoreCurrent()
		p, lease := pipeline(t, client, lock+name, lockclient.PipelineWindow(100))
		ctx := patient(t)
		const writes = 3000
		var pending []*lockclient.PendingWrite
		for i := range writes {
			pending = append(pending, sent(p.Put(ctx, "k", fmt.Append(nil, i), lockclient.WithContentType("text/plain"))))
		}
		check(t, p.Flush(ctx))
		for i, w := range pending {
			result, err := w.Wait(ctx)
			if n := int64(i) + 1; err != nil || result.Version != n || *result.Sequence != n || w.Sequence() != n || result.Replayed || result.FencingToken != lease.FencingToken() {
				t.Fatalf("%s: write %d: %+v, %v", name, n, result, err)
			}
		}
		// Nothing is under way: the lease's own writes go.
		if result, err := lease.Put(ctx, "k", []byte("own")); err != nil || *result.Sequence != writes+1 {
			t.Errorf("%s: the lease's own write: %+v, %v", name, result, err)
		}
		if result, err := sent(p.PutJSON(ctx, "json", map[string]int{"a": 1})).Wait(ctx); err != nil || *result.Sequence != writes+2 {
			t.Errorf("%s: and one more: %+v, %v", name, result, err)
		}
		record, err := client.API().Get(ctx, lock+name, "json")
		if err != nil || string(record.Value) != `{"a":1}` || record.ContentType != "application/json" {
			t.Errorf("%s: %+v, %v", name, record, err)
		}
		check(t, p.Close())
		check(t, p.Close())
		if _, err := p.Put(ctx, "k", nil); !errors.Is(err, lockclient.ErrInvalidRequest) {
			t.Errorf("%s: after Close: %v", name, err)
		}
		lease.ReleaseOnce()
		http2.CloseIdleConnections()
		if err := goleak.Find(before, goleak.IgnoreAnyFunction("net/http.(*persistConn).readLoop"), goleak.IgnoreAnyFunction("net/http.(*persistConn).writeLoop")); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Each write stands alone.
func TestPipelineRefusals(t *testing.T) {
	client, lock := shared(t)
	p, lease := pipeline(t, client, lock)
	ctx := patient(t)
	for what, call := range map[string]func() (*lockclient.PendingWrite, error){
		"an empty segment": func() (*lockclient.PendingWrite, error) { return p.Put(ctx, "a//b", nil) },
		"no UTF-8":         func() (*lockclient.PendingWrite, error) { return p.Put(ctx, "\xff", nil) },
		"two conditions": func() (*lockclient.PendingWrite, error) {
			return p.Put(ctx, "k", nil, lockclient.IfAbsent(), lockclient.IfVersion(1))
		},
		"version 0":             func() (*lockclient.PendingWrite, error) { return p.Put(ctx, "k", nil, lockclient.IfVersion(0)) },
		"a delete if absent":    func() (*lockclient.PendingWrite, error) { return p.Delete(ctx, "k", lockclient.IfAbsent()) },
		"what JSON can't write": func() (*lockclient.PendingWrite, error) { return p.PutJSON(ctx, "k", func() {}) },
	} {
		if _, err := call(); !errors.Is(err, lockclient.ErrInvalidRequest) && !errors.Is(err, lockclient.ErrInvalidName) {
			t.Errorf("%s: %v", what, err)
		}
	}
	first := sent(p.Put(ctx, "k", []byte("1"), lockclient.IfAbsent()))
	mismatch := sent(p.Put(ctx, "k", []byte("2"), lockclient.IfVersion(7)))
	missing := sent(p.Delete(ctx, "none"))
	malformed := sent(p.Put(ctx, "k", []byte("{"), lockclient.WithContentType("application/json")))
	last := sent(p.Put(ctx, "k", []byte("3"), lockclient.IfVersion(1)))
	gone := sent(p.Delete(ctx, "k", lockclient.IfVersion(2)))
	if err := p.Flush(ctx); !errors.Is(err, lockclient.ErrVersionMismatch) {
		t.Errorf("Flush: %v", err)
	}
	check(t, p.Flush(ctx))
	for i, want := range []struct {
		write *lockclient.PendingWrite
		err   error
	}{{first, nil}, {mismatch, lockclient.ErrVersionMismatch}, {missing, lockclient.ErrNotFound}, {malformed, lockclient.ErrInvalidRequest}, {last, nil}, {gone, nil}} {
		if _, err := want.write.Wait(ctx); !errors.Is(err, want.err) || errors.Is(err, lockclient.ErrOutcomeUnknown) {
			t.Errorf("write %d: %v, want %v", i+1, err, want.err)
		}
	}
	for _, window := range []int{0, -1, 65537} {
		if _, err := lease.Pipeline(ctx, lockclient.PipelineWindow(window)); !errors.Is(err, lockclient.ErrInvalidRequest) {
			t.Errorf("a window of %d: %v", window, err)
		}
	}
}

// Under a Subtree lease writes go to all resources below it.
func TestPipelineOnResources(t *testing.T) {
	client, lock := shared(t)
	ctx := patient(t)
	lease, err := client.Acquire(ctx, lock, lockclient.Subtree())
	check(t, err)
	defer lease.ReleaseOnce()
	p, err := lease.Pipeline(ctx)
	check(t, err)
	for i := range 300 {
		sent(p.Put(ctx, "k", []byte("v"), lockclient.OnResource(fmt.Sprintf("%s/%d", lock, i%3))))
	}
	check(t, p.Close())
	for i := range 3 {
		if record, err := client.API().Get(ctx, fmt.Sprintf("%s/%d", lock, i), "k"); err != nil || record.Version != 100 {
			t.Errorf("resource %d: %+v, %v", i, record, err)
		}
	}
}

// Who has lost the lease is told so, by the verdicts on what was sent and by refusing what comes later.
func TestPipelineLosesTheLease(t *testing.T) {
	client, lock := shared(t)
	ctx := patient(t)
	p, lease := pipeline(t, client, lock)
	check(t, second(sent(p.Put(ctx, "k", []byte("1"))).Wait(ctx)))
	_, err := client.API().Break(ctx, lock, api.BreakRequest{Reason: "test"})
	check(t, err)
	next, err := client.Acquire(ctx, lock, lockclient.WithLeaseOwner("other"))
	check(t, err)
	defer next.ReleaseOnce()
	if _, err := sent(p.Put(ctx, "k", []byte("2"))).Wait(ctx); !errors.Is(err, lockclient.ErrTokenStale) || errors.Is(err, lockclient.ErrOutcomeUnknown) {
		t.Errorf("what was sent: %v", err)
	}
	if _, err := p.Put(ctx, "k", []byte("3")); !errors.Is(err, lockclient.ErrLeaseLost) || lease.Valid() {
		t.Errorf("what comes later: %v", err)
	}
	if _, err := lease.Pipeline(ctx); !errors.Is(err, lockclient.ErrLeaseLost) {
		t.Errorf("another pipeline: %v", err)
	}
	if err := p.Close(); !errors.Is(err, lockclient.ErrTokenStale) {
		t.Errorf("Close: %v", err)
	}
}

func second[T any](_ T, err error) error { return err }

// Many goroutines share one pipeline.
func TestPipelineIsShared(t *testing.T) {
	client, lock := shared(t)
	p, _ := pipeline(t, client, lock, lockclient.PipelineWindow(7))
	ctx := patient(t)
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
	record, err := client.API().Get(ctx, lock, "k")
	if err != nil || record.Version != 400 || *record.Token.Sequence != 400 {
		t.Errorf("%+v, %v", record, err)
	}
}

// A pipeline ends with its ctx, and with its client; what was not sent was not applied.
func TestPipelineEnds(t *testing.T) {
	for what, end := range map[string]func(*lockclient.Client, context.CancelFunc){
		"ctx":    func(_ *lockclient.Client, cancel context.CancelFunc) { cancel() },
		"client": func(client *lockclient.Client, _ context.CancelFunc) { client.Close() },
	} {
		relay := newRelay(t)
		client := newClient(t, relay.url, lockclient.WithAnswerTimeout(time.Hour))
		lease, err := client.Acquire(patient(t), "pipeline/ends/"+what, lockclient.WithTTL(time.Minute))
		check(t, err)
		relay.harm(answersHeld)
		relay.cut()
		ctx, cancel := context.WithCancel(patient(t))
		p, err := lease.Pipeline(ctx, lockclient.PipelineWindow(2))
		check(t, err)
		held := []*lockclient.PendingWrite{sent(p.Put(ctx, "k", []byte("1"))), sent(p.Put(ctx, "k", []byte("2")))}
		short, cancelShort := context.WithTimeout(ctx, 50*time.Millisecond)
		_, err = p.Put(short, "k", []byte("3"))
		wantUnavailable(t, what+": no room", err, api.OutcomeNotApplied)
		cancelShort()
		end(client, cancel)
		for _, w := range held {
			if _, err := w.Wait(patient(t)); !errors.Is(err, lockclient.ErrUnavailable) {
				t.Errorf("%s: %v", what, err)
			}
		}
		if _, err := p.Put(patient(t), "k", nil); err == nil {
			t.Errorf("%s: a write was taken after the end", what)
		}
		_ = p.Close()
		cancel()
	}
}
