package k8slock_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"

	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/internal/test/testenv/gateway"
	"github.com/fencegate/fencegate/internal/test/testenv/postgres"
	"github.com/fencegate/fencegate/lockclient"
	"github.com/fencegate/fencegate/lockclient/k8slock"
)

func TestMain(m *testing.M) {
	klog.SetSlogLogger(slog.New(slog.DiscardHandler)) // electors report each failed try
	os.Exit(postgres.Main(m))
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// startGateway returns the URL of a gateway that ends with the test.
func startGateway(t *testing.T) string {
	t.Helper()
	return gateway.Serve(t, postgres.Migrated(t)).URL
}

func newClient(t *testing.T, url string, opts ...lockclient.Option) *lockclient.Client {
	t.Helper()
	quiet := lockclient.WithLogger(slog.New(slog.DiscardHandler))
	opts = append([]lockclient.Option{quiet, lockclient.WithAnswerTimeout(time.Second)}, opts...)
	client, err := lockclient.New(url, opts...)
	check(t, err)
	t.Cleanup(client.Close)
	return client
}

// candidate is a process with an elector. What happens to it is in its events: "leads TOKEN" and "stops".
type candidate struct {
	lock    *k8slock.Lock
	events  chan string
	leaders chan string
	config  leaderelection.LeaderElectionConfig
}

// newCandidate returns a candidate whose terms last for lease without a renewal. While it leads, it does work.
func newCandidate(
	t *testing.T, client *lockclient.Client, identity string, lease time.Duration, work func(context.Context, *k8slock.Lock),
) *candidate {
	t.Helper()
	c := &candidate{
		lock:   k8slock.New(client, t.Name(), identity),
		events: make(chan string, 1000), leaders: make(chan string, 1000),
	}
	c.config = leaderelection.LeaderElectionConfig{
		Lock: c.lock, LeaseDuration: lease, RenewDeadline: lease * 2 / 3, RetryPeriod: 50 * time.Millisecond,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) {
				c.events <- fmt.Sprint("leads ", c.lock.Lease().FencingToken())
				if work != nil {
					work(ctx, c.lock)
				}
			},
			OnStoppedLeading: func() { c.events <- "stops" },
			OnNewLeader:      func(identity string) { c.leaders <- identity },
		},
	}
	return c
}

// run runs the candidate until end is called, or the test ends.
func (c *candidate) run(t *testing.T) (end func()) {
	t.Helper()
	elector, err := leaderelection.NewLeaderElector(c.config)
	check(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { elector.Run(ctx) })
	end = func() { cancel(); running.Wait() }
	t.Cleanup(end)
	return end
}

// leads waits until the candidate leads, and returns its lease.
func (c *candidate) leads(t *testing.T) *lockclient.Lease {
	t.Helper()
	event := await.Receive(t, c.lock.Identity()+" leads", c.events)
	lease := c.lock.Lease()
	if want := fmt.Sprint("leads ", lease.FencingToken()); event != want {
		t.Fatalf("%s %s, expected that it %s", c.lock.Identity(), event, want)
	}
	return lease
}

func (c *candidate) stops(t *testing.T) {
	t.Helper()
	if event := await.Receive(t, c.lock.Identity()+" stops leading", c.events); event != "stops" {
		t.Fatalf("%s %s, expected that it stops", c.lock.Identity(), event)
	}
}

// freezer keeps requests from being sent while it is frozen, as if the process were. A request ends with its ctx.
type freezer struct {
	http.RoundTripper
	mu     sync.Mutex
	thawed chan struct{}
}

func newFreezer() *freezer {
	f := &freezer{RoundTripper: http.DefaultTransport, thawed: make(chan struct{})}
	close(f.thawed)
	return f
}

func (f *freezer) freeze() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.thawed = make(chan struct{})
}

func (f *freezer) thaw() {
	f.mu.Lock()
	defer f.mu.Unlock()
	close(f.thawed)
}

func (f *freezer) RoundTrip(request *http.Request) (*http.Response, error) {
	f.mu.Lock()
	thawed := f.thawed
	f.mu.Unlock()
	select {
	case <-thawed:
		return f.RoundTripper.RoundTrip(request)
	case <-request.Context().Done():
		return nil, request.Context().Err()
	}
}

// record is what an elector of a lease of these seconds writes.
func record(identity string, seconds int) resourcelock.LeaderElectionRecord {
	return resourcelock.LeaderElectionRecord{HolderIdentity: identity, LeaseDurationSeconds: seconds}
}
