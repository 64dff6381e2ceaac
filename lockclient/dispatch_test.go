package lockclient_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/lockclient"
)

// hangUp reads the whole request, and closes the connection without an answer.
func hangUp(_ http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	panic(http.ErrAbortHandler)
}

func TestOutcomeOfWritesWithoutAnswer(t *testing.T) {
	t.Parallel()
	cut := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100")
		_, _ = w.Write([]byte(`{"resource":`))
	}
	plain, _ := serve(t, hangUp)
	cutting, _ := serve(t, cut)
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
		"a closed port":          {newAPI(t, "http://"+closedAddress), api.OutcomeNotApplied},
		"a failed TLS handshake": {newAPI(t, strings.Replace(plain, "http", "https", 1)), api.OutcomeNotApplied},
		"a hang-up":              {newAPI(t, plain), api.OutcomeUnknown},
		"a hang-up on HTTP/2": {
			newAPI(t, http2.URL, lockclient.WithHTTPClient(http2.Client())), api.OutcomeUnknown,
		},
		"a cut answer":       {newAPI(t, cutting), api.OutcomeUnknown},
		"a silent transport": {newAPI(t, plain, lockclient.WithHTTPClient(silent)), api.OutcomeUnknown},
	} {
		for name, call := range everyCall(t.Context(), test.client) {
			want, err := test.want, call()
			if name == "read" {
				want = api.OutcomeNotApplied
			}
			wantUnavailable(t, name+" after "+what, err, want)
			if strings.Contains(err.Error(), `"http`) {
				t.Errorf("%s after %s: the text %v has the whole request in it", name, what, err)
			}
		}
	}
}

func TestOutcomeOfACanceledWrite(t *testing.T) {
	t.Parallel()
	received, finished := make(chan struct{}, 1), make(chan struct{})
	url, calls := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		received <- struct{}{}
		<-finished
	})
	t.Cleanup(func() { close(finished) })
	client := newAPI(t, url)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-received
		cancel()
	}()
	_, err := client.Put(ctx, "a", "k", lockclient.Write{})
	wantCanceled(t, "a Put under way", err, api.OutcomeUnknown)
	_, err = client.Put(ctx, "a", "k", lockclient.Write{})
	wantCanceled(t, "the next Put", err, api.OutcomeNotApplied)
	if calls.Load() != 1 {
		t.Errorf("%d calls were sent, expected 1", calls.Load())
	}
}

func TestEveryCallHasADeadline(t *testing.T) {
	t.Parallel()
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
		t.Errorf("a call without a deadline got %v (%t), expected one before %v", deadline, limited, earliest)
	}
	_, _ = client.Acquire(context.Background(), "a", api.AcquireRequest{OwnerID: "w", WaitMS: wait.Milliseconds()})
	if !limited || !deadline.After(earliest) {
		t.Errorf("a call that waits for 600 s got the deadline %v (%t)", deadline, limited)
	}
	chosen := earliest.Add(time.Hour)
	ctx, cancel := context.WithDeadline(context.Background(), chosen)
	defer cancel()
	if _ = client.Ready(ctx); !deadline.Equal(chosen) {
		t.Errorf("the caller's deadline %v became %v", chosen, deadline)
	}
}

// wantUnavailable expects ErrUnavailable with this outcome.
func wantUnavailable(t *testing.T, what string, err error, want api.Outcome) {
	t.Helper()
	var problem *api.Problem
	if !errors.Is(err, lockclient.ErrUnavailable) || !errors.As(err, &problem) {
		t.Errorf("%s returned %v, expected ErrUnavailable", what, err)
	} else if problem.Outcome != want || !problem.Retryable {
		t.Errorf("%s has the outcome %s (%v), expected %s", what, problem.Outcome, err, want)
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
