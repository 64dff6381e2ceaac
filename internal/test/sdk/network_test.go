package sdk

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/lockclient"
)

// harm is what a relay does to its connections.
type harm int

const (
	calm        harm = iota
	answersLost      // only the head of an answer arrives; requests arrive
	answersHeld      // no part of an answer arrives
)

// relay passes connections on to the shared gateway, byte by byte.
type relay struct {
	url   string
	close func() // accepts no more connections, and cuts the open ones

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

// begin cuts all connections, and does this harm to new ones.
func (r *relay) begin(harms harm) {
	r.mu.Lock()
	r.harms = harms
	r.mu.Unlock()
	r.cut()
}

// hold keeps back all answers from now on.
func (r *relay) hold() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.harms = answersHeld
}

// cut closes all connections.
func (r *relay) cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, connection := range r.open {
		_ = connection.Close()
	}
	r.open = nil
}

// toxics are faults of connections: cuts, also in the middle of a request or an answer, resets, late closes of one
// half, delays, and tiny packets.
var toxics = []string{
	`"type":"limit_data","attributes":{"bytes":700}`,
	`"type":"limit_data","attributes":{"bytes":90}`,
	`"type":"timeout","attributes":{"timeout":40}`,
	`"type":"reset_peer","attributes":{"timeout":10}`,
	`"type":"slow_close","attributes":{"delay":60}`,
	`"type":"latency","attributes":{"latency":30,"jitter":25}`,
	`"type":"slicer","attributes":{"average_size":20,"size_variation":10,"delay":200}`,
}

// toxicNetwork returns the URL of a proxy of the shared gateway that has one fault after the other, until the test
// ends or calm is called.
func toxicNetwork(t *testing.T) (url string, calm func()) {
	t.Helper()
	shared(t)
	registry := toxiproxy.NewMetricsContainer(prometheus.NewRegistry())
	proxy := toxiproxy.NewProxy(
		toxiproxy.NewServer(registry, zerolog.Nop()),
		"gateway",
		"127.0.0.1:0",
		strings.TrimPrefix(gatewayURL, "http://"),
	)
	if err := proxy.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(proxy.Stop)
	ended := make(chan struct{})
	var troubling sync.WaitGroup
	troubling.Go(func() {
		for i := 0; ; i++ {
			stream := []string{"upstream", "downstream"}[rand.IntN(2)]
			toxic := fmt.Sprintf(`{"name":"toxic","stream":%q,%s}`, stream, toxics[i%len(toxics)])
			if _, err := proxy.Toxics.AddToxicJson(io.NopCloser(strings.NewReader(toxic))); err != nil {
				t.Error(err)
			}
			done := over(ended, 20*time.Millisecond+rand.N(60*time.Millisecond))
			if err := proxy.Toxics.RemoveToxic(t.Context(), "toxic"); err != nil && !done {
				t.Error(err)
			}
			if done || over(ended, rand.N(40*time.Millisecond)) {
				return
			}
		}
	})
	calm = sync.OnceFunc(func() {
		close(ended)
		troubling.Wait()
	})
	t.Cleanup(calm)
	return "http://" + proxy.Listen, calm
}

// over waits for ended, at most for the pause, and says whether it is closed.
func over(ended <-chan struct{}, pause time.Duration) bool {
	select {
	case <-ended:
		return true
	case <-time.After(pause):
		return false
	}
}

// history is the observations of all workers of TestToxicNetwork.
type history struct {
	mu       sync.Mutex
	holder   *lockclient.Lease
	versions []int64 // of writes that succeeded, in the order of the answers
	unknown  int64   // writes with an unknown outcome
}

// acquired notes a holder. Two leases must never be valid at once.
func (h *history) acquired(t *testing.T, lease *lockclient.Lease) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.holder != nil && h.holder.Valid() && lease.Valid() {
		t.Errorf("%v and %v are both valid", h.holder, lease)
	}
	h.holder = lease
}

func (h *history) released(lease *lockclient.Lease) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.holder == lease {
		h.holder = nil
	}
}

func (h *history) wrote(t *testing.T, version int64, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case err == nil:
		h.versions = append(h.versions, version)
	case errors.Is(err, lockclient.ErrOutcomeUnknown):
		h.unknown++
	case errors.Is(err, lockclient.ErrTokenStale), errors.Is(err, lockclient.ErrUnavailable):
	default:
		t.Errorf("a write returned %v", err)
	}
}

// Through a network that cuts, delays and half-closes, every write is applied exactly once: the record's version counts
// them. Two leases are never valid at once, and the lock is free in the end.
func TestToxicNetwork(t *testing.T) {
	t.Parallel()
	url, calm := toxicNetwork(t)
	const workers, rounds, writes = 4, 4, 5
	direct, lock := shared(t)
	var seen history
	var working sync.WaitGroup
	for range workers {
		client := newClient(t, url, lockclient.WithAnswerTimeout(2*time.Second))
		working.Go(func() {
			for range rounds {
				lease, err := client.Acquire(t.Context(), lock, lockclient.WithWait(time.Minute),
					lockclient.WithTTL(20*time.Second))
				if err != nil {
					t.Errorf("Acquire returned %v", err)
					return
				}
				seen.acquired(t, lease)
				for i := range writes {
					result, err := lease.Put(t.Context(), "state", fmt.Append(nil, lease.FencingToken(), " ", i))
					seen.wrote(t, result.Version, err)
				}
				seen.released(lease)
				lease.ReleaseOnce()
			}
		})
	}
	working.Wait()
	calm()
	if !slices.IsSorted(seen.versions) {
		t.Errorf("the versions %v are not in the order of the answers", seen.versions)
	}
	record, err := direct.API().Get(t.Context(), lock, "state")
	check(t, err)
	answered := int64(len(seen.versions))
	if record.Version < answered || record.Version > answered+seen.unknown {
		t.Errorf("%d writes were applied, expected %d, and up to %d unknown ones", record.Version, answered, seen.unknown)
	}
	await.True(t, "a free lock without a queue", func() bool {
		state, err := direct.API().Lock(t.Context(), lock)
		return err == nil && state.State == "free" && len(state.Queue) == 0
	})
}
