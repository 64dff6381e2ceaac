package sdk

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/lockclient"
	"github.com/fencegate/fencegate/lockclient/api"
)

// putOf is a put under a token, numbered unless sequence is 0.
func putOf(key string, sequence int64, value string) api.BulkWrite {
	write := api.BulkWrite{Op: "put", Resource: "r", Key: key, Value: []byte(value), FencingToken: new(int64(1))}
	if sequence > 0 {
		write.Sequence = &sequence
	}
	return write
}

// bulkGateway answers arrays, and keeps the keys of each. answer returns the code of a refusal, with its outcome for
// unavailable, or "". A code "lost" loses the whole answer.
type bulkGateway struct {
	mu     sync.Mutex
	keys   []string
	answer func(request int, write api.BulkWrite) (code api.Code, outcome api.Outcome)
}

func (g *bulkGateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	g.mu.Lock()
	defer g.mu.Unlock()
	body, _ := io.ReadAll(r.Body)
	var writes []api.BulkWrite
	if json.Unmarshal(body, &writes) != nil || len(writes) > api.BulkWritesMax || len(body) > api.BulkBytesMax {
		panic("the array is over a limit")
	}
	var keys []string
	var answer api.BulkResults
	lost := false
	for _, write := range writes {
		keys = append(keys, write.Key)
		result := api.BulkResult{Status: 201, Result: &api.WriteResult{Resource: "r", Key: write.Key, Version: 1, FencingToken: 1}}
		if code, outcome := g.answer(len(g.keys), write); code == "lost" {
			lost = true
		} else if code != "" {
			result = api.BulkResult{Problem: &api.Problem{Code: code, Retryable: outcome != "", Outcome: outcome}}
		}
		answer.Results = append(answer.Results, result)
	}
	g.keys = append(g.keys, strings.Join(keys, " "))
	if lost {
		panic(http.ErrAbortHandler)
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer)
}

// received returns the keys of each array so far.
func (g *bulkGateway) received() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.keys)
}

func (g *bulkGateway) client(t *testing.T) *lockclient.Client {
	base, _ := serve(t, g.ServeHTTP)
	return newClient(t, base)
}

// Any number of writes is sent within the limits of a request, in their order. What can't be sent fails alone.
func TestWritesAreSplit(t *testing.T) {
	t.Parallel()
	g := &bulkGateway{answer: func(int, api.BulkWrite) (api.Code, api.Outcome) { return "", "" }}
	var writes []api.BulkWrite
	for i := range 2*api.BulkWritesMax + 1 {
		writes = append(writes, putOf(fmt.Sprint(i), int64(i)+1, "1"))
	}
	long := `"` + string(bytes.Repeat([]byte("x"), api.BulkBytesMax/2-1000)) + `"`
	writes = append(writes, putOf("bad", 9999, "{"), putOf("a", 1, long), putOf("b", 2, long), putOf("c", 3, long))
	for i, outcome := range g.client(t).Writes(await.Context(t), writes) {
		if writes[i].Key == "bad" {
			wantErr(t, "a value that is no JSON", outcome.Err, lockclient.ErrInvalidRequest)
		} else if outcome.Err != nil || outcome.Result.Key != writes[i].Key {
			t.Fatalf("write %d has %+v", i, outcome)
		}
	}
	for i, last := range []string{"999", "1999", "b", "c"} {
		if keys := strings.Fields(g.received()[i]); keys[len(keys)-1] != last {
			t.Errorf("request %d ended with %s, expected %s", i, keys[len(keys)-1], last)
		}
	}
}

// What may be sent again is, until it is answered. An unnumbered write that may have been applied is not.
func TestWritesAreRetried(t *testing.T) {
	t.Parallel()
	g := &bulkGateway{answer: func(request int, write api.BulkWrite) (api.Code, api.Outcome) {
		switch {
		case write.Key == "forbidden":
			return api.CodeForbidden, ""
		case request == 0 && write.Key == "waits":
			return api.CodeUnavailable, api.OutcomeNotApplied
		case request == 0 && strings.HasPrefix(write.Key, "lost"):
			return api.CodeUnavailable, api.OutcomeUnknown
		case request == 1 && write.Key == "lost":
			return api.CodeTokenStale, ""
		}
		return "", ""
	}}
	writes := []api.BulkWrite{
		putOf("done", 1, "1"), putOf("waits", 0, "1"), putOf("lost", 2, "1"), putOf("lost-unnumbered", 0, "1"),
		putOf("forbidden", 3, "1"),
	}
	outcomes := g.client(t).Writes(await.Context(t), writes)
	check(t, outcomes[0].Err)
	check(t, outcomes[1].Err)
	wantErr(t, "a write that was in doubt", outcomes[2].Err, lockclient.ErrTokenStale)
	wantErr(t, "a write that was in doubt", outcomes[2].Err, lockclient.ErrOutcomeUnknown)
	wantErr(t, "an unnumbered write", outcomes[3].Err, lockclient.ErrOutcomeUnknown)
	wantErr(t, "another write", outcomes[4].Err, lockclient.ErrForbidden)
	if want := []string{"done waits lost lost-unnumbered forbidden", "waits lost"}; !slices.Equal(g.received(), want) {
		t.Errorf("the gateway got %q, expected %q", g.received(), want)
	}

	g = &bulkGateway{answer: func(request int, _ api.BulkWrite) (api.Code, api.Outcome) {
		return map[bool]api.Code{true: "lost"}[request == 0], ""
	}}
	outcomes = g.client(t).Writes(await.Context(t), []api.BulkWrite{putOf("a", 1, "1"), putOf("b", 0, "1")})
	check(t, outcomes[0].Err)
	wantErr(t, "an unnumbered write of a lost answer", outcomes[1].Err, lockclient.ErrOutcomeUnknown)
}

// Where no gateway answers, nothing else is sent. What was not sent is known not to be applied.
func TestWritesStop(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	g := &bulkGateway{answer: func(request int, _ api.BulkWrite) (api.Code, api.Outcome) {
		if request == 1 {
			cancel()
		}
		return "lost", ""
	}}
	outcomes := g.client(t).Writes(ctx, slices.Repeat([]api.BulkWrite{putOf("a", 1, "1")}, api.BulkWritesMax+1))
	wantErr(t, "a write that was sent", outcomes[0].Err, lockclient.ErrOutcomeUnknown)
	if err := outcomes[api.BulkWritesMax].Err; err == nil || errors.Is(err, lockclient.ErrOutcomeUnknown) || len(g.received()) > 2 {
		t.Errorf("a write behind it has %v after %d requests, expected that it was not sent", err, len(g.received()))
	}
}

// A lease numbers its writes. All get their results from a gateway, and its own writes continue.
func TestWritesOfALease(t *testing.T) {
	t.Parallel()
	client, lock := shared(t)
	lease := mustAcquire(t, client, lock)
	const count = api.BulkWritesMax + 500
	writes := slices.Repeat([]api.BulkWrite{{Op: "put", Key: "k", Value: []byte("1")}}, count)
	for i, outcome := range lease.Writes(await.Context(t), writes) {
		if n := int64(i) + 1; outcome.Err != nil || outcome.Result.Version != n || *outcome.Result.Sequence != n {
			t.Fatalf("write %d has %+v", n, outcome)
		}
	}
	if result, err := lease.Put(await.Context(t), "k", []byte("own")); err != nil || *result.Sequence != count+1 {
		t.Errorf("the lease's own write returned %+v, %v", result, err)
	}
	mustBreak(t, client, lock)
	wantErr(t, "after the loss", lease.Writes(await.Context(t), writes[:1])[0].Err, lockclient.ErrTokenStale)
	wantErr(t, "the lease", lease.Err(), lockclient.ErrLeaseLost)
}
