package lockclient_test

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"testing"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/lockclient"
)

func acquire(t *testing.T, client *lockclient.API, lock string) api.Lease {
	t.Helper()
	lease, err := client.Acquire(t.Context(), lock, api.AcquireRequest{OwnerID: "w"})
	check(t, err)
	return lease
}

// wantProblem expects an error that matches want, and returns its problem, which must be the gateway's.
func wantProblem(t *testing.T, err, want error) *api.Problem {
	t.Helper()
	var problem *api.Problem
	if !errors.Is(err, want) || !errors.As(err, &problem) {
		t.Fatalf("got %v, expected %v", err, want)
	}
	if problem.Instance == "" || problem.Detail == "" {
		t.Errorf("expected the gateway's problem, saw %+v", problem)
	}
	return problem
}

func TestAPIWrites(t *testing.T) {
	t.Parallel()
	shared, lock := shared(t)
	client, ctx := shared.API(), t.Context()
	lease := acquire(t, client, lock)
	token := lease.FencingToken
	write := lockclient.Write{
		Token: numbered(token, 1), LeaseID: lease.LeaseID, Value: []byte("\x00v\xff"), IfNoneMatch: true,
	}
	first, err := client.Put(ctx, lock, "k", write)
	if err != nil || first.Resource != lock || first.Key != "k" || first.FencingToken != token ||
		*first.Sequence != 1 || first.Replayed {
		t.Fatalf("Put returned %+v, %v", first, err)
	}
	if again, err := client.Put(ctx, lock, "k", write); err != nil || !again.Replayed || again.Version != first.Version {
		t.Errorf("the same Put returned %+v, %v, expected a replay", again, err)
	}
	record, err := client.Get(ctx, lock, "k")
	if err != nil || !bytes.Equal(record.Value, write.Value) || record.ContentType != "application/octet-stream" ||
		record.Version != first.Version || record.Token.String() != fmt.Sprintf("%d.1", token) {
		t.Errorf("Get returned %+v, %v", record, err)
	}
	next, err := client.Put(ctx, lock, "k", lockclient.Write{
		Token: numbered(token, 2), ContentType: "text/plain; charset=utf-8", IfMatch: &first.Version,
	})
	if err != nil || next.Version <= first.Version {
		t.Errorf("the next Put returned %+v, %v", next, err)
	}
	record, err = client.Get(ctx, lock, "k")
	if err != nil || len(record.Value) != 0 || record.ContentType != "text/plain; charset=utf-8" {
		t.Errorf("Get of an empty value returned %+v, %v", record, err)
	}
	removal := lockclient.Write{Token: numbered(token, 3), LeaseID: lease.LeaseID, IfMatch: &first.Version}
	_, err = client.Delete(ctx, lock, "k", removal)
	if problem := wantProblem(t, err, lockclient.ErrVersionMismatch); *problem.Version != next.Version {
		t.Errorf("Delete of another version returned %+v", problem)
	}
	removal.IfMatch = &next.Version
	if deleted, err := client.Delete(ctx, lock, "k", removal); err != nil || deleted.Version <= next.Version {
		t.Errorf("Delete returned %+v, %v", deleted, err)
	}
	wantErr(t, "Get of a deleted record", second(client.Get(ctx, lock, "k")), lockclient.ErrNotFound)
}

func TestAPITransactions(t *testing.T) {
	t.Parallel()
	shared, lock := shared(t)
	client, ctx := shared.API(), t.Context()
	one, two := lock+"/1", lock+"/2"
	tokenOne, tokenTwo, sequence := acquire(t, client, one).FencingToken, acquire(t, client, two).FencingToken, int64(1)
	bytes64, version := "AP8=", int64(0)
	body := api.TransactionRequest{
		Fences: []api.WriteToken{
			{Resource: one, FencingToken: &tokenOne, Sequence: &sequence},
			{Resource: two, FencingToken: &tokenTwo, Sequence: &sequence},
		},
		Ops: []api.Op{
			{Op: "put", Resource: one, Key: "json", Value: []byte(`{"tag":"<b>&"}`), IfVersion: &version},
			{Op: "put", Resource: two, Key: "bytes", ValueBase64: &bytes64},
		},
	}
	result, err := client.Transaction(ctx, body)
	if err != nil || len(result.Results) != 2 || result.Results[1].Key != "bytes" || result.Results[1].Version < 1 ||
		result.Replayed {
		t.Fatalf("Transaction returned %+v, %v", result, err)
	}
	again, err := client.Transaction(ctx, body)
	if err != nil || !again.Replayed || len(again.Results) != 2 || !reflect.DeepEqual(again.Results, result.Results) {
		t.Errorf("the same Transaction returned %+v, %v, expected a replay", again, err)
	}
	for _, want := range [][3]string{{one, "json", `{"tag":"<b>&"}`}, {two, "bytes", "\x00\xff"}} {
		if record, err := client.Get(ctx, want[0], want[1]); err != nil || string(record.Value) != want[2] {
			t.Errorf("%s is %q, %v, expected %q", want[1], record.Value, err, want[2])
		}
	}
}

// Each call sends its method, its path and its query as the API defines them.
func TestAPIRequests(t *testing.T) {
	t.Parallel()
	var got string
	url, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		got = r.Method + " " + r.URL.RequestURI()
		writeProblem(w, api.Problem{Status: 404, Code: api.CodeNotFound})
	})
	a, ctx := newAPI(t, url), t.Context()
	for want, call := range map[string]func() error{
		"GET /v1/resources/a/b/records?cursor=c&limit=2&prefix=x": func() error {
			return second(a.Records(ctx, "a/b", lockclient.RecordsQuery{Prefix: "x", Limit: 2, Cursor: "c"}))
		},
		"GET /v1/resources/a/b/records/k?consistency=durable": func() error {
			return second(a.Get(ctx, "a/b", "k", lockclient.Durable()))
		},
		"GET /v1/locks/a/b":             func() error { return second(a.Lock(ctx, "a/b")) },
		"GET /v1/elections/a":           func() error { return second(a.Election(ctx, "a")) },
		"GET /v1/sessions/s":            func() error { return second(a.Session(ctx, "s")) },
		"POST /v1/sessions/s/keepalive": func() error { return second(a.KeepSessionAlive(ctx, "s")) },
		"DELETE /v1/sessions/s":         func() error { return second(a.EndSession(ctx, "s")) },
		"GET /readyz":                   func() error { return a.Ready(ctx) },
		"GET /healthz":                  func() error { return a.Alive(ctx) },
	} {
		if err := call(); got != want || !errors.Is(err, lockclient.ErrNotFound) {
			t.Errorf("sent %s and returned %v, expected %s and not_found", got, err, want)
		}
	}
}
