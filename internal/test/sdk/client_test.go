package sdk

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/lockclient"
	"github.com/fencegate/fencegate/lockclient/admin"
	"github.com/fencegate/fencegate/lockclient/api"
)

func TestNewRefusesInvalidURLs(t *testing.T) {
	t.Parallel()
	for _, baseURL := range []string{
		"", "127.0.0.1:8080", "localhost:8080", "ftp://host", "http://", "http://host?x=1", "http://host?", "http://host#x",
		"http://host:port", "http://user:secret@host?x", "http://user:secret@%zz",
	} {
		client, err := lockclient.New(baseURL)
		if err == nil || client != nil {
			t.Errorf("New accepted %q", baseURL)
		} else if strings.Contains(err.Error(), "secret") {
			t.Errorf("New of %q returned %q, which has the password in it", baseURL, err)
		}
	}
}

func TestErrorsHideThePassword(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.NotFoundHandler())
	base := strings.Replace(server.URL, "http://", "http://user:secret@", 1)
	client := newAPI(t, base)

	foreign := client.Ready(context.Background())
	server.Close()
	unanswered := client.Ready(context.Background())
	for _, err := range []error{foreign, unanswered} {
		if err == nil || strings.Contains(err.Error(), "secret") || !strings.Contains(err.Error(), "user:xxxxx@") {
			t.Errorf("got %v, expected an error with the URL and without the password", err)
		}
	}
}

func TestUserAgentIsSent(t *testing.T) {
	t.Parallel()
	var got string
	url, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		got = r.UserAgent()
		_, _ = w.Write([]byte(`{"status":"ready"}`))
	})
	if err := newAPI(t, url).Ready(context.Background()); err != nil || got != "fencegate-lockclient" {
		t.Errorf("the default User-Agent is %q, %v", got, err)
	}
	client := newAPI(t, url, lockclient.WithUserAgent("shop/7"), lockclient.WithHTTPClient(http.DefaultClient))
	if err := client.Ready(context.Background()); err != nil || got != "shop/7" {
		t.Errorf("the User-Agent is %q, %v, expected shop/7", got, err)
	}
}

func TestCloseClosesConnections(t *testing.T) {
	t.Parallel()
	closed := make(chan struct{}, 2)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"status":"ready"}`))
	}))
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateClosed {
			closed <- struct{}{}
		}
	}
	server.Start()
	defer server.Close()
	client := newClient(t, server.URL)
	for range 2 { // a closed client connects again
		if err := client.API().Ready(context.Background()); err != nil {
			t.Fatal(err)
		}
		client.Close()
		<-closed
	}
	newClient(t, server.URL, lockclient.WithHTTPClient(server.Client())).Close()
}

// idleConnections are those that the transport keeps.
var idleConnections = []goleak.Option{
	goleak.IgnoreAnyFunction("net/http.(*persistConn).readLoop"),
	goleak.IgnoreAnyFunction("net/http.(*persistConn).writeLoop"),
}

// Each background goroutine ends with its lease, session or watch, and all of them with the client.
func TestNoGoroutineIsLeft(t *testing.T) {
	before := goleak.IgnoreCurrent()
	client, lock := shared(t)
	ctx := await.Context(t)
	released, err := client.Acquire(ctx, lock+"/released", lockclient.WithTTL(time.Hour))
	check(t, err)
	session, err := client.NewSession(ctx, lockclient.WithTTL(time.Hour))
	check(t, err)
	watch, err := client.Watch(ctx, lock)
	check(t, err)
	check(t, released.Release(ctx))
	check(t, session.Close(ctx))
	watch.Close()
	if err := await.Nil(func() error { return goleak.Find(append(idleConnections, before)...) }); err != nil {
		t.Errorf("after the end of each: %v", err)
	}

	_, err = client.Acquire(ctx, lock+"/held", lockclient.WithTTL(time.Hour))
	check(t, err)
	_, err = client.NewSession(ctx, lockclient.WithTTL(time.Hour))
	check(t, err)
	_, err = client.Elect(ctx, lock+"/election", lockclient.WithTTL(time.Hour))
	check(t, err)
	watch, err = client.Watch(ctx, lock)
	check(t, err)
	client.Close()
	wantErr(t, "Next of the watch", second(watch.Next(ctx)), lockclient.ErrClosed)
	if err := await.Nil(func() error { return goleak.Find(before) }); err != nil {
		t.Errorf("after the client's Close: %v", err)
	}
}

// Every request has the header, with the value of the call's ctx; heartbeats have none. The client's own headers stay.
func TestWithHeaders(t *testing.T) {
	t.Parallel()
	type callKey struct{}
	var calls atomic.Int64
	var heartbeats sync.Map // by the last part of the path
	noting := roundTripper(func(r *http.Request) (*http.Response, error) {
		switch kind, values := path.Base(r.URL.Path), r.Header.Values("Test-Call"); {
		case slices.Equal(values, []string{"call"}):
			calls.Add(1)
		case slices.Equal(values, []string{""}) && (kind == "renew" || kind == "keepalive"):
			heartbeats.Store(kind, true)
		default:
			t.Errorf("%s %s came with the header %q", r.Method, r.URL.Path, values)
		}
		return http.DefaultTransport.RoundTrip(r)
	})
	client, name := shared(t, lockclient.WithHTTPClient(&http.Client{Transport: noting}),
		lockclient.WithHeaders(func(ctx context.Context, header http.Header) {
			value, _ := ctx.Value(callKey{}).(string)
			header.Set("Test-Call", value)
			for _, own := range []string{
				"Fencing-Token", "Lease-Id", "Content-Type", "If-Match", "If-None-Match", "Last-Event-ID", "User-Agent",
			} {
				header.Set(own, "invalid") // the gateway would refuse the request
			}
		}))
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	ctx := context.WithValue(await.Context(t), callKey{}, "call")
	useEverything(ctx, t, client, name, func() {
		await.True(t, "heartbeats of the lease and the session", func() bool {
			_, renewed := heartbeats.Load("renew")
			_, kept := heartbeats.Load("keepalive")
			return renewed && kept
		})
	})
	if calls.Load() < 11 {
		t.Errorf("%d requests came with the value of their call, expected 11 or more", calls.Load())
	}
}

// useEverything sends each kind of request. It calls held while there are heartbeats of a lease and of a session.
func useEverything(ctx context.Context, t *testing.T, client *lockclient.Client, name string, held func()) {
	t.Helper()
	heartbeat := lockclient.HeartbeatEvery(20 * time.Millisecond)
	session, err := client.NewSession(ctx, heartbeat)
	check(t, err)
	lease, err := client.Acquire(ctx, name+"/a", heartbeat)
	check(t, err)
	check(t, lease.Renew(ctx))
	check(t, second(lease.Put(ctx, "k", []byte("v"), lockclient.IfAbsent())))
	check(t, second(lease.Delete(ctx, "k")))
	check(t, second(client.API().Records(ctx, name+"/a", lockclient.RecordsQuery{})))
	check(t, second(admin.New(client).Overview(ctx, time.Minute)))
	watch, err := client.Watch(ctx, name+"/a")
	check(t, err)
	check(t, second(watch.Next(ctx)))
	check(t, lease.Writes(ctx, []api.BulkWrite{{Op: "put", Key: "k", Value: []byte("1")}})[0].Err)
	held()
	check(t, lease.Release(ctx))
	check(t, session.Close(ctx))
	watch.Close()
}
