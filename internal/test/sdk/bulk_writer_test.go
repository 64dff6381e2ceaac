package sdk

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/lockclient"
	"github.com/fencegate/fencegate/lockclient/api"
)

// lineOf returns a put under a lease; sequence 0 is none.
func lineOf(lease *lockclient.Lease, key string, sequence int64) []byte {
	number := ""
	if sequence > 0 {
		number = fmt.Sprintf(`,"sequence":%d`, sequence)
	}
	return fmt.Appendf(nil, `{"op":"put","resource":%q,"key":%q,"value":1,"fencing_token":%d%s}`,
		lease.Name(), key, lease.FencingToken(), number)
}

// startBulk starts a BulkWriter, and returns a function that closes it and returns the results.
func startBulk(
	t *testing.T, client *lockclient.Client, opts ...lockclient.PipelineOption,
) (*lockclient.BulkWriter, func() []lockclient.BulkResult) {
	t.Helper()
	var results []lockclient.BulkResult
	opts = append(opts, lockclient.OnResult(func(r lockclient.BulkResult) { results = append(results, r) }))
	writer, err := client.BulkWriter(await.Context(t), opts...)
	check(t, err)
	t.Cleanup(func() { _ = writer.Close() })
	return writer, func() []lockclient.BulkResult {
		_ = writer.Close()
		return results
	}
}

// Lines of several leases, and malformed ones, get their results in order.
func TestBulkWriter(t *testing.T) {
	t.Parallel()
	client, lock := shared(t)
	ctx := await.Context(t)
	one, two := mustAcquire(t, client, lock+"/1"), mustAcquire(t, client, lock+"/2")
	writer, results := startBulk(t, client, lockclient.PipelineWindow(3), lockclient.PipelineBytes(1))
	wants := []error{nil, nil, lockclient.ErrInvalidRequest, nil, lockclient.ErrTokenStale}
	for _, line := range [][]byte{
		lineOf(one, "k", 1), lineOf(two, "k", 1), []byte("no JSON"), lineOf(one, "k", 2), lineOf(two, "late", 1),
	} {
		check(t, writer.Send(ctx, lockclient.BulkLine{JSON: line}))
	}
	wantErr(t, "Flush", writer.Flush(ctx), lockclient.ErrInvalidRequest)
	for _, line := range []string{"", " ", "{}\n{}"} {
		err := writer.Send(ctx, lockclient.BulkLine{JSON: []byte(line)})
		wantErr(t, fmt.Sprintf("Send of %q", line), err, lockclient.ErrInvalidRequest)
	}
	got := results()
	if len(got) != len(wants) {
		t.Fatalf("saw %d results, expected %d", len(got), len(wants))
	}
	for i, r := range got {
		if !errors.Is(r.Err, wants[i]) || r.Index != int64(i) || r.Verdict.Line != int64(i)+1 || r.Verdict.Status == 0 {
			t.Errorf("result %d is %+v, expected %v", i, r, wants[i])
		}
	}
	wantErr(t, "Send after Close", writer.Send(ctx, lockclient.BulkLine{JSON: []byte("{}")}), lockclient.ErrInvalidRequest)
	wantVersion(t, client, lock+"/1", "k", 2)
}

// A second run with SentBefore reports an applied line as replayed, and a line that may have been rejected as unknown. A
// record counts for that once it is durable.
func TestBulkWriterResumes(t *testing.T) {
	t.Parallel()
	client, lock := shared(t, lockclient.WithHTTPClient(&http.Client{Transport: roundTripper(
		func(r *http.Request) (*http.Response, error) {
			if r.Method == http.MethodGet && r.URL.Query().Get("consistency") != "durable" {
				t.Errorf("a line is judged by GET %s, which a failover may take back", r.URL.RequestURI())
			}
			return http.DefaultTransport.RoundTrip(r)
		})}))
	reader, _ := shared(t)
	ctx := await.Context(t)
	lease := mustAcquire(t, client, lock)
	first, results := startBulk(t, client)
	for _, n := range []int64{1, 3, 4} {
		check(t, first.Send(ctx, lockclient.BulkLine{JSON: lineOf(lease, fmt.Sprint("k", n), n)}))
	}
	results()
	again, results := startBulk(t, client)
	for n := int64(1); n <= 5; n++ {
		line := lockclient.BulkLine{JSON: lineOf(lease, fmt.Sprint("k", n), n), SentBefore: n <= 4}
		check(t, again.Send(ctx, line))
	}
	for i, r := range results() {
		switch n := i + 1; {
		case n == 2:
			wantErr(t, "the line that was not applied", r.Err, lockclient.ErrOutcomeUnknown)
		case r.Err != nil || *r.Verdict.Replayed != (n <= 4):
			t.Errorf("line %d has %+v, expected a replay up to line 4", n, r)
		}
	}
	for n, version := range map[int]int64{1: 1, 3: 2, 4: 3, 5: 4} { // versions count the writes of the resource
		wantVersion(t, reader, lock, fmt.Sprint("k", n), version)
	}
}

// An unnumbered line whose verdict is lost is never applied twice.
func TestBulkWriterResendsAnUnnumberedLine(t *testing.T) {
	t.Parallel()
	relay := newRelay(t)
	direct, lock := shared(t)
	client, ctx := newClient(t, relay.url), await.Context(t)
	plain := mustAcquire(t, direct, lock)
	relay.begin(answersLost)
	writer, err := client.BulkWriter(ctx)
	check(t, err)
	check(t, writer.Send(ctx, lockclient.BulkLine{JSON: lineOf(plain, "once", 0)}))
	awaitValue(t, direct, plain.Name(), "once", "1")
	relay.begin(calm)
	err = writer.Close()
	wantErr(t, "the unnumbered line", err, lockclient.ErrTokenStale)
	wantErr(t, "the unnumbered line", err, lockclient.ErrOutcomeUnknown)
	wantVersion(t, direct, plain.Name(), "once", 1)
}

// If no gateway answers, the lines fail after PipelineRetryFor, and at once when ctx is canceled.
func TestBulkWriterFails(t *testing.T) {
	t.Parallel()
	client := newClient(t, "http://"+closedAddress)
	writer, results := startBulk(t, client, lockclient.PipelineRetryFor(50*time.Millisecond))
	check(t, writer.Send(await.Context(t), lockclient.BulkLine{JSON: []byte("{}")}))
	r := results()[0]
	wantUnavailable(t, "no gateway", r.Err, api.OutcomeNotApplied)
	var failed *lockclient.Error
	if r.Verdict.Status != 0 || !errors.As(r.Err, &failed) || !strings.Contains(fmt.Sprint(failed.Cause), "refused") {
		t.Errorf("the result is %+v, expected no verdict and the network's error as the cause", r)
	}
	ctx, cancel := context.WithCancel(await.Context(t))
	var canceled error
	writer, err := client.BulkWriter(ctx, lockclient.PipelineRetryFor(time.Hour),
		lockclient.OnResult(func(r lockclient.BulkResult) { canceled = r.Err }))
	check(t, err)
	check(t, writer.Send(ctx, lockclient.BulkLine{JSON: []byte("{}")}))
	cancel()
	wantErr(t, "Close", writer.Close(), context.Canceled)
	wantCanceled(t, "the line", canceled, api.OutcomeNotApplied)
}
