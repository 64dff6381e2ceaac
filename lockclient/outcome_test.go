package lockclient_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/lockclient"
)

// hangUp takes a request whole and ends the connection without an answer.
func hangUp(_ http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	panic(http.ErrAbortHandler)
}

func TestOutcomeOfWritesWithoutAnswer(t *testing.T) {
	cut := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100")
		_, _ = w.Write([]byte(`{"resource":`))
	}
	plain := httptest.NewServer(http.HandlerFunc(hangUp))
	defer plain.Close()
	cutting := httptest.NewServer(http.HandlerFunc(cut))
	defer cutting.Close()
	http2 := httptest.NewUnstartedServer(http.HandlerFunc(hangUp))
	http2.EnableHTTP2 = true
	http2.StartTLS()
	defer http2.Close()

	silent := &http.Client{Transport: roundTripper(func(*http.Request) (*http.Response, error) {
		return nil, errors.New("broken")
	})}
	for what, test := range map[string]struct {
		client *lockclient.API
		want   api.Outcome
	}{
		"nobody listens":                          {newAPI(t, "http://"+closedAddress(t)), api.OutcomeNotApplied},
		"TLS is not spoken":                       {newAPI(t, "https://"+plain.Listener.Addr().String()), api.OutcomeNotApplied},
		"the server hangs up":                     {newAPI(t, plain.URL), api.OutcomeUnknown},
		"the server hangs up on HTTP/2":           {newAPI(t, http2.URL, lockclient.WithHTTPClient(http2.Client())), api.OutcomeUnknown},
		"the answer is cut":                       {newAPI(t, cutting.URL), api.OutcomeUnknown},
		"the transport does not tell what it did": {newAPI(t, plain.URL, lockclient.WithHTTPClient(silent)), api.OutcomeUnknown},
	} {
		_, acquireErr := test.client.Acquire(context.Background(), "a", api.AcquireRequest{OwnerID: "w"})
		_, renewErr := test.client.Renew(context.Background(), "a", api.RenewRequest{OwnerID: "w"})
		_, putErr := test.client.Put(context.Background(), "a", "k", lockclient.Write{Value: []byte("v")})
		_, deleteErr := test.client.Delete(context.Background(), "a", "k", lockclient.Removal{})
		_, transactionErr := test.client.Transaction(context.Background(), api.TransactionRequest{})
		_, policyErr := test.client.PutPolicy(context.Background(), "a", api.PolicyRequest{})
		unsetErr := test.client.DeletePolicy(context.Background(), "a")
		for _, err := range []error{acquireErr, renewErr, putErr, deleteErr, transactionErr, policyErr, unsetErr} {
			wantUnavailable(t, what, err, test.want)
			if strings.Contains(err.Error(), `"http`) {
				t.Errorf("%s: %v has the request in it, of which the gateway's URL is enough", what, err)
			}
		}
		_, getErr := test.client.Get(context.Background(), "a", "k")
		wantUnavailable(t, what+", a read", getErr, api.OutcomeNotApplied)
	}
}

func TestOutcomeWhenTheCallerGivesUp(t *testing.T) {
	received, finished := make(chan struct{}, 1), make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		received <- struct{}{}
		<-finished
	}))
	defer server.Close()
	defer close(finished)
	client := newAPI(t, server.URL)

	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		<-received
		cancel()
	}()
	_, err := client.Put(ctx, "a", "k", lockclient.Write{})
	wantUnavailable(t, "cancelled under way", err, api.OutcomeUnknown)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("%v hides that it was cancelled", err)
	}

	_, err = client.Put(ctx, "a", "k", lockclient.Write{})
	wantUnavailable(t, "cancelled before", err, api.OutcomeNotApplied)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("%v hides that it was cancelled", err)
	}
	select {
	case <-received:
		t.Error("a cancelled call was sent")
	default:
	}
}

func TestEveryCallHasADeadline(t *testing.T) {
	var deadline time.Time
	var limited bool
	client := newAPI(t, "http://host", lockclient.WithHTTPClient(&http.Client{
		Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
			deadline, limited = r.Context().Deadline()
			return nil, errors.New("not sent")
		}),
	}))
	wait := 600 * time.Second
	earliest := time.Now().Add(wait)

	_ = client.Ready(context.Background())
	if !limited || deadline.After(earliest) {
		t.Errorf("a call without a deadline got %t, %v", limited, deadline)
	}
	_, _ = client.Acquire(context.Background(), "a", api.AcquireRequest{OwnerID: "w", WaitMS: wait.Milliseconds()})
	if !limited || !deadline.After(earliest) {
		t.Errorf("a call that waits for 600 s got %t, %v", limited, deadline)
	}
	chosen := earliest.Add(time.Hour)
	ctx, cancel := context.WithDeadline(context.Background(), chosen)
	defer cancel()
	if _ = client.Ready(ctx); !deadline.Equal(chosen) {
		t.Errorf("the caller's deadline became %v", deadline)
	}
}

func wantUnavailable(t *testing.T, what string, err error, want api.Outcome) {
	t.Helper()
	var problem *api.Problem
	if !errors.Is(err, lockclient.ErrUnavailable) || !errors.As(err, &problem) {
		t.Errorf("%s: got %v, want ErrUnavailable", what, err)
	} else if problem.Outcome != want || !problem.Retryable {
		t.Errorf("%s: the outcome is %s (%v), want %s", what, problem.Outcome, err, want)
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// closedAddress is one that nobody listens on.
func closedAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	return listener.Addr().String()
}
