package lockclient_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/lockclient"
)

// harm is what a relay does to its connections.
type harm int

const (
	calm        harm = iota
	answersLost      // of an answer only the head arrives; what is sent does
	answersHeld      // nothing of an answer arrives
)

// relay passes connections on to the gateway of all tests, byte by byte.
type relay struct {
	url   string
	close func() // takes no more connections, and cuts those that are open

	mu    sync.Mutex
	harms harm
	open  []net.Conn
}

func newRelay(t *testing.T) *relay {
	t.Helper()
	shared(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	r := &relay{url: "http://" + listener.Addr().String()}
	var relaying sync.WaitGroup
	relaying.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			relaying.Go(func() { r.pass(client) })
		}
	})
	r.close = func() {
		_ = listener.Close()
		r.cut()
	}
	t.Cleanup(func() {
		r.close()
		relaying.Wait()
	})
	return r
}

func (r *relay) pass(client net.Conn) {
	defer func() { _ = client.Close() }()
	gateway, err := net.Dial("tcp", strings.TrimPrefix(gatewayURL, "http://"))
	if err != nil {
		return
	}
	defer func() { _ = gateway.Close() }()
	r.mu.Lock()
	r.open = append(r.open, client, gateway)
	r.mu.Unlock()
	go func() {
		_, _ = io.Copy(gateway, client)
		_ = gateway.(*net.TCPConn).CloseWrite()
	}()
	buffer := make([]byte, 32<<10)
	for head := true; ; head = false {
		n, err := gateway.Read(buffer)
		if err != nil {
			return
		}
		r.mu.Lock()
		harms := r.harms
		r.mu.Unlock()
		if harms == answersHeld || harms == answersLost && !head {
			continue
		}
		if _, err := client.Write(buffer[:n]); err != nil {
			return
		}
	}
}

// harm begins to do harm, and calm ends it.
func (r *relay) harm(harms harm) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.harms = harms
}

func (r *relay) calm() { r.harm(calm) }

// cut closes all connections.
func (r *relay) cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, connection := range r.open {
		_ = connection.Close()
	}
	r.open = nil
}

// When all verdicts of a stream are lost, those are told that can be told for certain: a put that is never refused
// for its data was applied if a later write was, the last write is a replay, and of all others nobody knows.
func TestPipelineVerdictsLost(t *testing.T) {
	relay := newRelay(t)
	client := newClient(t, relay.url)
	direct, lock := shared(t)
	ctx := patient(t)
	p, lease := pipeline(t, client, lock)
	check(t, second(lease.Put(ctx, "old", []byte("0"))))
	relay.harm(answersLost)
	relay.cut()
	writes := []*lockclient.PendingWrite{
		sent(p.Put(ctx, "a", []byte("1"))),
		sent(p.Put(ctx, "b", []byte("2"), lockclient.IfAbsent())),
		sent(p.Put(ctx, "b", []byte("3"), lockclient.IfVersion(99))), // refused
		sent(p.Delete(ctx, "old")),
		sent(p.Delete(ctx, "none")), // refused
		sent(p.Put(ctx, "a", []byte("4"))),
		sent(p.Put(ctx, "a", []byte("5"))),
	}
	eventually(t, func() bool {
		record, err := direct.API().Get(ctx, lock, "a")
		return err == nil && string(record.Value) == "5"
	})
	relay.calm()
	relay.cut()
	for i, want := range []struct {
		version int64
		unknown bool
	}{{version: 0}, {unknown: true}, {unknown: true}, {unknown: true}, {unknown: true}, {version: 0}, {version: 6}} {
		result, err := writes[i].Wait(ctx)
		switch {
		case want.unknown && (!errors.Is(err, lockclient.ErrOutcomeUnknown) || !errors.Is(err, lockclient.ErrTokenStale)):
			t.Errorf("write %d: %+v, %v, want an unknown outcome", i+1, result, err)
		case !want.unknown && (err != nil || !result.Replayed || result.Version != want.version || *result.Sequence != int64(i)+2):
			t.Errorf("write %d: %+v, %v, want a replay with version %d", i+1, result, err, want.version)
		}
	}
	if record, err := direct.API().Get(ctx, lock, "a"); err != nil || record.Version != 6 {
		t.Errorf("%+v, %v: a write was applied twice, or not", record, err)
	}
	if err := p.Close(); !errors.Is(err, lockclient.ErrOutcomeUnknown) {
		t.Errorf("Close: %v", err)
	}
}

// A put that was refused, and whose verdict was lost, is not taken for one that was applied because a later write was
// admitted: the policy may have changed between the two.
func TestPipelineVerdictsLostWhileThePolicyChanges(t *testing.T) {
	relay := newRelay(t)
	client := newClient(t, relay.url)
	direct, lock := shared(t)
	ctx := patient(t)
	p, _ := pipeline(t, client, lock)
	_, err := direct.API().Break(ctx, lock, api.BreakRequest{Reason: "test"})
	check(t, err)
	relay.harm(answersLost)
	relay.cut()
	refused := sent(p.Put(ctx, "refused", []byte("1")))
	eventually(t, func() bool {
		page, err := direct.API().Rejections(ctx, lockclient.RejectionsQuery{Resource: lock})
		return err == nil && len(page.Rejections) == 1
	})
	check(t, second(direct.API().PutPolicy(ctx, lock, api.PolicyRequest{Authority: "external"})))
	stored := sent(p.Put(ctx, "overwritten", []byte("2")))
	last := sent(p.Put(ctx, "overwritten", []byte("3")))
	eventually(t, func() bool {
		record, err := direct.API().Get(ctx, lock, "overwritten")
		return err == nil && string(record.Value) == "3"
	})
	relay.calm()
	relay.cut()
	if result, err := refused.Wait(ctx); !errors.Is(err, lockclient.ErrTokenStale) || !errors.Is(err, lockclient.ErrOutcomeUnknown) {
		t.Errorf("of the put that was refused: %+v, %v, want ErrTokenStale and ErrOutcomeUnknown", result, err)
	}
	for _, w := range []*lockclient.PendingWrite{stored, last} {
		if result, err := w.Wait(ctx); err != nil || !result.Replayed {
			t.Errorf("of a put that was applied: %+v, %v", result, err)
		}
	}
	wantNotFound := second(direct.API().Get(ctx, lock, "refused"))
	if !errors.Is(wantNotFound, lockclient.ErrNotFound) {
		t.Errorf("the record of the put that was refused: %v", wantNotFound)
	}
	_ = p.Close()
}

// Wherever a stream is cut, every write is applied exactly once, and told to be.
func TestPipelineWritesLost(t *testing.T) {
	relay := newRelay(t)
	client := newClient(t, relay.url)
	_, lock := shared(t)
	ctx := patient(t)
	p, lease := pipeline(t, client, lock, lockclient.PipelineWindow(50))
	cutting, done := make(chan struct{}), sync.WaitGroup{}
	done.Go(func() {
		for !wait(cutting, 20*time.Millisecond+rand.N(80*time.Millisecond)) {
			relay.cut()
		}
	})
	const writes = 1500
	var pending []*lockclient.PendingWrite
	for i := range writes {
		pending = append(pending, sent(p.Put(ctx, "k", fmt.Append(nil, i))))
	}
	close(cutting)
	done.Wait()
	check(t, p.Close())
	replayed := 0
	for i, w := range pending {
		result, err := w.Wait(ctx)
		if err != nil || result.Version != int64(i)+1 && result.Version != 0 {
			t.Fatalf("write %d: %+v, %v", i+1, result, err)
		}
		if result.Replayed {
			replayed++
		}
	}
	record, err := newClient(t, gatewayURL).API().Get(ctx, lock, "k")
	if err != nil || record.Version != writes || string(record.Value) != fmt.Sprint(writes-1) {
		t.Errorf("%+v, %v: want version %d", record, err, writes)
	}
	t.Logf("%d of %d writes were replays, under %v", replayed, writes, lease)
}

// Through a network that cuts, delays and half-closes, every write is applied exactly once.
func TestPipelineToxicNetwork(t *testing.T) {
	url, calm := toxicNetwork(t)
	lock := fmt.Sprint("toxic/pipeline/", rand.Int64())
	direct := newClient(t, gatewayURL)
	client := newClient(t, url, lockclient.WithAnswerTimeout(2*time.Second))
	ctx := patient(t)
	lease, err := client.Acquire(ctx, lock, lockclient.WithTTL(time.Minute), lockclient.WithHeartbeat())
	check(t, err)
	p, err := lease.Pipeline(ctx, lockclient.PipelineWindow(20))
	check(t, err)
	const writes = 600
	for i := range writes {
		if _, err := p.Put(ctx, "k", fmt.Append(nil, i)); err != nil {
			t.Fatal(err)
		}
	}
	calm()
	check(t, p.Close())
	if record, err := direct.API().Get(ctx, lock, "k"); err != nil || record.Version != writes {
		t.Errorf("%+v, %v: want version %d", record, err, writes)
	}
}

// A pipeline goes on at the next gateway when one dies, stands still, or ends.
func TestPipelineFailover(t *testing.T) {
	for name, signal := range map[string]syscall.Signal{"killed": syscall.SIGKILL, "frozen": syscall.SIGSTOP, "told to end": syscall.SIGTERM} {
		t.Run(name, func(t *testing.T) {
			first, second, client := pair(t, lockclient.WithAnswerTimeout(time.Second))
			ctx := patient(t)
			lease, err := client.Acquire(ctx, "job", lockclient.WithTTL(time.Minute))
			check(t, err)
			p, err := lease.Pipeline(ctx, lockclient.PipelineWindow(100))
			check(t, err)
			const writes = 2000
			for i := range writes {
				if i == writes/2 {
					check(t, first.Signal(signal))
				}
				if _, err := p.Put(ctx, "k", fmt.Append(nil, i)); err != nil {
					t.Fatal(err)
				}
			}
			check(t, p.Flush(ctx))
			check(t, p.Close())
			record, err := newClient(t, second.URL).API().Get(ctx, "job", "k")
			if err != nil || record.Version != writes {
				t.Errorf("%+v, %v: want version %d", record, err, writes)
			}
			if signal == syscall.SIGSTOP {
				check(t, first.Signal(syscall.SIGCONT))
			}
		})
	}
}

// With no gateway there, what is under way fails in the end; what was never sent was not applied.
func TestPipelineGivesUp(t *testing.T) {
	relay := newRelay(t)
	client := newClient(t, relay.url)
	_, lock := shared(t)
	p, _ := pipeline(t, client, lock)
	relay.harm(answersHeld)
	relay.cut()
	ctx, cancel := context.WithCancel(patient(t))
	w := sent(p.Put(ctx, "k", []byte("1")))
	cancel()
	if _, err := w.Wait(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Wait: %v", err)
	}
	if err := p.Flush(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Flush: %v", err)
	}
	relay.calm()
	relay.cut()
	check(t, second(w.Wait(patient(t))))
}
