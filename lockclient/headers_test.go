package lockclient_test

import (
	"context"
	"net/http"
	"regexp"
	"sync"
	"testing"
	"time"

	"github.com/fencegate/fencegate/internal/testenv/await"
	"github.com/fencegate/fencegate/lockclient"
)

type callKey struct{}

// callHeader is the header that the test adds, with the value of the caller's ctx.
const callHeader = "Test-Call"

// seen counts the values of callHeader for each kind of request.
type seen struct {
	mu    sync.Mutex
	calls map[string]map[string]int
}

var testName = regexp.MustCompile(
	`(sessions/|testwithheaders)[^?]*?` +
		`(/acquire|/renew|/release|/watch|/observe|/campaign|/resign|/keepalive|/records/.*|)$`,
)

func (s *seen) note(r *http.Request) {
	kind := r.Method + " " + testName.ReplaceAllString(r.URL.Path, "…$2")
	value := "(none)"
	if values, there := r.Header[callHeader]; there {
		value = values[0]
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.calls[kind] == nil {
		s.calls[kind] = map[string]int{}
	}
	s.calls[kind][value]++
}

func (s *seen) count(kind, value string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls[kind][value]
}

// RoundTrip notes a request and sends it.
func (s *seen) RoundTrip(r *http.Request) (*http.Response, error) {
	s.note(r)
	return http.DefaultTransport.RoundTrip(r)
}

// noting returns a client of the shared gateway whose requests are noted.
func noting(t *testing.T) (*lockclient.Client, string, *seen) {
	t.Helper()
	all := &seen{calls: map[string]map[string]int{}}
	client, name := shared(
		t,
		lockclient.WithHTTPClient(&http.Client{Transport: all}),
		lockclient.WithHeaders(func(ctx context.Context, header http.Header) {
			value, _ := ctx.Value(callKey{}).(string)
			header.Set(callHeader, value)
			for _, own := range []string{
				"Fencing-Token", "Lease-Id", "Content-Type", "If-Match", "If-None-Match", "Last-Event-ID", "User-Agent",
			} {
				header.Set(own, "invalid") // the gateway would refuse the request
			}
		}),
	)
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	return client, name, all
}

// Every request has the header, with the value of the call's ctx; heartbeats have none. The client's own headers stay.
func TestWithHeaders(t *testing.T) {
	t.Parallel()
	client, name, all := noting(t)
	ctx := context.WithValue(await.Context(t), callKey{}, "call")
	heartbeat := lockclient.HeartbeatEvery(20 * time.Millisecond)
	session, err := client.NewSession(ctx, heartbeat)
	check(t, err)
	lease, err := client.Acquire(ctx, name+"/a", heartbeat)
	check(t, err)
	check(t, second(lease.Put(ctx, "k", []byte("v"), lockclient.IfAbsent())))
	check(t, second(lease.Delete(ctx, "k")))
	check(t, second(client.API().Records(ctx, name+"/a", lockclient.RecordsQuery{})))

	watch, err := client.Watch(ctx, name+"/a")
	check(t, err)
	check(t, second(watch.Next(ctx)))
	observed, err := client.Observe(ctx, name+"/e")
	check(t, err)
	check(t, second(observed.Next(ctx)))
	pipeline, err := lease.Pipeline(ctx)
	check(t, err)
	check(t, second(pipeline.Put(ctx, "k", []byte("v"))))
	check(t, pipeline.Close())

	waiter := make(chan error, 1)
	go func() {
		waiting, err := client.Acquire(ctx, name+"/a", lockclient.WithLeaseOwner("waiter"), lockclient.WithWait(time.Minute))
		if err == nil {
			waiting.ReleaseOnce()
		}
		waiter <- err
	}()
	awaitQueue(t, client, name+"/a", 1)
	await.True(t, "heartbeats of the lease and the session", func() bool {
		return all.count("POST /v1/locks/…/renew", "") > 0 && all.count("POST /v1/…/keepalive", "") > 0
	})
	check(t, lease.Release(ctx))
	check(t, <-waiter)
	check(t, session.Close(ctx))
	watch.Close()
	observed.Close()

	for _, kind := range []string{
		"POST /v1/sessions", "POST /v1/locks/…/acquire", "PUT /v1/resources/…/records/k", "DELETE /v1/resources/…/records/k",
		"GET /v1/locks/…/watch",
		"GET /v1/elections/…/observe", "POST /v1/writes", "POST /v1/locks/…/release", "DELETE /v1/…",
	} {
		if all.count(kind, "call") == 0 {
			t.Errorf("%s came without the value of its call", kind)
		}
	}
	all.mu.Lock()
	defer all.mu.Unlock()
	for kind, values := range all.calls {
		if values["(none)"] > 0 {
			t.Errorf("%s came without the header: %v", kind, values)
		}
	}
}
