package lockclient_test

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/fencegate/fencegate/lockclient"
)

// toxics are what a network does to connections: it cuts them, also in the middle of a request or an answer, resets
// them, closes one half of them late, delays and crumbles what they carry.
var toxics = []string{
	`"type":"limit_data","attributes":{"bytes":700}`,
	`"type":"limit_data","attributes":{"bytes":90}`,
	`"type":"timeout","attributes":{"timeout":40}`,
	`"type":"reset_peer","attributes":{"timeout":10}`,
	`"type":"slow_close","attributes":{"delay":60}`,
	`"type":"latency","attributes":{"latency":30,"jitter":25}`,
	`"type":"slicer","attributes":{"average_size":20,"size_variation":10,"delay":200}`,
}

// toxicNetwork leads to the gateway of all tests, through one trouble after the other, until the test ends or calm is
// called.
func toxicNetwork(t *testing.T) (url string, calm func()) {
	t.Helper()
	shared(t)
	registry := toxiproxy.NewMetricsContainer(prometheus.NewRegistry())
	proxy := toxiproxy.NewProxy(toxiproxy.NewServer(registry, zerolog.Nop()), "gateway", "127.0.0.1:0", strings.TrimPrefix(gatewayURL, "http://"))
	if err := proxy.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(proxy.Stop)
	over := make(chan struct{})
	var troubling sync.WaitGroup
	troubling.Go(func() {
		for i := 0; ; i++ {
			stream := []string{"upstream", "downstream"}[rand.IntN(2)]
			toxic := fmt.Sprintf(`{"name":"toxic","stream":%q,%s}`, stream, toxics[i%len(toxics)])
			if _, err := proxy.Toxics.AddToxicJson(io.NopCloser(strings.NewReader(toxic))); err != nil {
				t.Error(err)
			}
			ended := wait(over, 20*time.Millisecond+rand.N(60*time.Millisecond))
			if err := proxy.Toxics.RemoveToxic(t.Context(), "toxic"); err != nil && !ended {
				t.Error(err)
			}
			if ended || wait(over, rand.N(40*time.Millisecond)) {
				return
			}
		}
	})
	calm = sync.OnceFunc(func() {
		close(over)
		troubling.Wait()
	})
	t.Cleanup(calm)
	return "http://" + proxy.Listen, calm
}

// wait reports whether it is over already.
func wait(over <-chan struct{}, pause time.Duration) bool {
	select {
	case <-over:
		return true
	case <-time.After(pause):
		return false
	}
}

// ledger is what the workers of TestToxicNetwork know together.
type ledger struct {
	mu       sync.Mutex
	holder   *lockclient.Lease
	versions []int64 // of writes that were answered, in the order of the answers
	doubtful int64   // writes of which nobody can tell
}

// enter notes the holder. Two that both rely on their leases must never meet.
func (c *ledger) enter(t *testing.T, lease *lockclient.Lease) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.holder != nil && c.holder.Valid() && lease.Valid() {
		t.Errorf("%v and %v are both relied on", c.holder, lease)
	}
	c.holder = lease
}

func (c *ledger) endTurn(lease *lockclient.Lease) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.holder == lease {
		c.holder = nil
	}
}

// wrote notes what became of a write.
func (c *ledger) wrote(t *testing.T, version int64, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case err == nil:
		c.versions = append(c.versions, version)
	case errors.Is(err, lockclient.ErrOutcomeUnknown):
		c.doubtful++
	case errors.Is(err, lockclient.ErrTokenStale), errors.Is(err, lockclient.ErrUnavailable):
	default:
		t.Errorf("a write: %v", err)
	}
}

// Through a network that cuts, delays and half-closes, every write is applied exactly once: the record's version
// counts them. Nobody relies on the lock beside another, and it is free in the end.
func TestToxicNetwork(t *testing.T) {
	url, calm := toxicNetwork(t)
	const workers, rounds, writes = 4, 4, 5
	lock := fmt.Sprint("toxic/", rand.Int64())
	var known ledger
	var working sync.WaitGroup
	for range workers {
		client := newClient(t, url, lockclient.WithAnswerTimeout(2*time.Second))
		working.Go(func() {
			for range rounds {
				lease, err := client.Acquire(t.Context(), lock, lockclient.WithWait(time.Minute), lockclient.WithTTL(20*time.Second), lockclient.WithHeartbeat())
				if err != nil {
					t.Errorf("acquire: %v", err)
					return
				}
				known.enter(t, lease)
				for i := range writes {
					result, err := lease.Put(t.Context(), "state", fmt.Append(nil, lease.FencingToken(), " ", i))
					known.wrote(t, result.Version, err)
				}
				known.endTurn(lease)
				lease.ReleaseOnce()
			}
		})
	}
	working.Wait()
	calm()

	direct := newClient(t, gatewayURL)
	record, err := direct.API().Get(t.Context(), lock, "state")
	if err != nil {
		t.Fatal(err)
	}
	for i := 1; i < len(known.versions); i++ {
		if known.versions[i] <= known.versions[i-1] {
			t.Errorf("version %d was answered after %d", known.versions[i], known.versions[i-1])
		}
	}
	answered := int64(len(known.versions))
	if record.Version < answered || record.Version > answered+known.doubtful {
		t.Errorf("%d writes were answered and %d are doubtful, but %d were applied", answered, known.doubtful, record.Version)
	}
	t.Logf("%d writes were answered, %d are doubtful, %d were applied", answered, known.doubtful, record.Version)
	eventually(t, func() bool {
		state, err := direct.API().Lock(t.Context(), lock)
		return err == nil && state.State == "free" && len(state.Queue) == 0
	})
}
