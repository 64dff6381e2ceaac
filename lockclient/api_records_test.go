package lockclient_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/lockclient"
)

const otherLeaseID = "00000000-0000-4000-8000-000000000000"

func numbered(token, sequence int64) api.FencingToken {
	return api.FencingToken{Token: token, Sequence: &sequence}
}

func acquire(t *testing.T, client *lockclient.API, lock string) api.Lease {
	t.Helper()
	lease, err := client.Acquire(t.Context(), lock, api.AcquireRequest{OwnerID: "w"})
	if err != nil {
		t.Fatal(err)
	}
	return lease
}

func TestWrites(t *testing.T) {
	client, ctx := newGateway(t).API(), t.Context()
	lease := acquire(t, client, "a/b")
	token := lease.FencingToken
	write := lockclient.Write{Token: numbered(token, 1), LeaseID: lease.LeaseID, Value: []byte("\x00v\xff"), IfNoneMatch: true}

	first, err := client.Put(ctx, "a/b", "k", write)
	if err != nil || first.Resource != "a/b" || first.Key != "k" || first.FencingToken != token || *first.Sequence != 1 || first.Replayed {
		t.Fatalf("put: %+v, %v", first, err)
	}
	again, err := client.Put(ctx, "a/b", "k", write)
	if err != nil || !again.Replayed || again.Version != first.Version {
		t.Errorf("the same put: %+v, %v", again, err)
	}
	record, err := client.Get(ctx, "a/b", "k")
	if err != nil || !bytes.Equal(record.Value, write.Value) || record.ContentType != "application/octet-stream" ||
		record.Version != first.Version || record.Token.String() != fmt.Sprintf("%d.1", token) {
		t.Errorf("get: %+v, %v", record, err)
	}

	second, err := client.Put(ctx, "a/b", "k", lockclient.Write{
		Token: numbered(token, 2), ContentType: "text/plain; charset=utf-8", IfMatch: &first.Version,
	})
	if err != nil || second.Version <= first.Version {
		t.Errorf("put: %+v, %v", second, err)
	}
	record, err = client.Get(ctx, "a/b", "k")
	if err != nil || len(record.Value) != 0 || record.ContentType != "text/plain; charset=utf-8" {
		t.Errorf("get: %+v, %v", record, err)
	}
	removal := lockclient.Removal{Token: numbered(token, 3), LeaseID: lease.LeaseID, IfMatch: &first.Version}
	_, err = client.Delete(ctx, "a/b", "k", removal)
	if problem := wantProblem(t, err, lockclient.ErrVersionMismatch); *problem.Version != second.Version {
		t.Errorf("delete: %+v", problem)
	}
	removal.IfMatch = &second.Version
	deleted, err := client.Delete(ctx, "a/b", "k", removal)
	if err != nil || deleted.Version <= second.Version {
		t.Errorf("delete: %+v, %v", deleted, err)
	}
	_, err = client.Get(ctx, "a/b", "k")
	wantRefused(t, err, lockclient.ErrNotFound)
}

func TestWritesThatAreShutOut(t *testing.T) {
	client, ctx := newGateway(t).API(), t.Context()
	lease := acquire(t, client, "a")
	token := lease.FencingToken
	if _, err := client.Put(ctx, "a", "k", lockclient.Write{Token: numbered(token, 5)}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.PutPolicy(ctx, "strict", api.PolicyRequest{RequireLeaseID: true, RequireLiveLease: true}); err != nil {
		t.Fatal(err)
	}
	short := int64(100)
	expiring, err := client.Acquire(ctx, "strict", api.AcquireRequest{OwnerID: "w", TTLMS: &short})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, func() bool {
		state, err := client.Lock(ctx, "strict")
		return err == nil && state.State == "expired"
	})

	version := int64(99)
	for name, test := range map[string]struct {
		resource string
		write    lockclient.Write
		want     error
	}{
		"no token":         {"a", lockclient.Write{}, lockclient.ErrTokenRequired},
		"negative token":   {"a", lockclient.Write{Token: api.FencingToken{Token: -1}}, lockclient.ErrInvalidToken},
		"never granted":    {"a", lockclient.Write{Token: api.FencingToken{Token: token + 1000}}, lockclient.ErrTokenUnknown},
		"used":             {"a", lockclient.Write{Token: numbered(token, 4)}, lockclient.ErrTokenStale},
		"another's lease":  {"a", lockclient.Write{Token: numbered(token, 6), LeaseID: otherLeaseID}, lockclient.ErrLeaseMismatch},
		"no lease_id":      {"strict", lockclient.Write{Token: numbered(expiring.FencingToken, 1)}, lockclient.ErrLeaseMismatch},
		"expired":          {"strict", lockclient.Write{Token: numbered(expiring.FencingToken, 1), LeaseID: expiring.LeaseID}, lockclient.ErrLeaseExpired},
		"another version":  {"a", lockclient.Write{Token: numbered(token, 6), IfMatch: &version}, lockclient.ErrVersionMismatch},
		"a record":         {"a", lockclient.Write{Token: numbered(token, 6), IfNoneMatch: true}, lockclient.ErrVersionMismatch},
		"no JSON":          {"a", lockclient.Write{Token: numbered(token, 6), ContentType: "application/json", Value: []byte("{")}, lockclient.ErrInvalidRequest},
		"too large":        {"a", lockclient.Write{Token: numbered(token, 6), Value: make([]byte, 1<<20+1)}, lockclient.ErrTooLarge},
		"too long a name":  {strings.Repeat("n", 513), lockclient.Write{Token: numbered(token, 6)}, lockclient.ErrInvalidName},
		"lease_id is none": {"a", lockclient.Write{Token: numbered(token, 6), LeaseID: "x"}, lockclient.ErrInvalidRequest},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := client.Put(ctx, test.resource, "k", test.write)
			wantRefused(t, err, test.want)
		})
	}
	fence, err := client.Fence(ctx, "a")
	if err != nil || fence.GrantedToken != token || !fence.Open || fence.LastToken != token || fence.LastSequence != 5 {
		t.Errorf("fence: %+v, %v", fence, err)
	}
}

func TestRecordsByPages(t *testing.T) {
	client, ctx := newGateway(t).API(), t.Context()
	token := acquire(t, client, "a").FencingToken
	for i, key := range []string{"x/1", "x/2", "x/3", "y"} {
		write := lockclient.Write{Token: numbered(token, int64(i)), Value: []byte(key), ContentType: "text/plain"}
		if _, err := client.Put(ctx, "a", key, write); err != nil {
			t.Fatal(err)
		}
	}
	first, err := client.Records(ctx, "a", lockclient.RecordsQuery{Prefix: "x/", Limit: 2})
	if err != nil || len(first.Records) != 2 || first.Records[1].Key != "x/2" || first.Records[1].Size != 3 || *first.Records[1].Sequence != 1 {
		t.Fatalf("first page: %+v, %v", first, err)
	}
	second, err := client.Records(ctx, "a", lockclient.RecordsQuery{Prefix: "x/", Limit: 2, Cursor: first.NextCursor})
	if err != nil || len(second.Records) != 1 || second.Records[0].Key != "x/3" || second.NextCursor != "" {
		t.Errorf("second page: %+v, %v", second, err)
	}
}

func TestTransactions(t *testing.T) {
	client, ctx := newGateway(t).API(), t.Context()
	one, two, sequence := acquire(t, client, "one").FencingToken, acquire(t, client, "two").FencingToken, int64(1)
	bytes64, version := "AP8=", int64(0)
	body := api.TransactionRequest{
		Fences: []api.WriteToken{
			{Resource: "one", FencingToken: &one, Sequence: &sequence},
			{Resource: "two", FencingToken: &two, Sequence: &sequence},
		},
		Ops: []api.Op{
			{Op: "put", Resource: "one", Key: "json", Value: []byte(`{"tag":"<b>&"}`), IfVersion: &version},
			{Op: "put", Resource: "two", Key: "bytes", ValueBase64: &bytes64},
		},
	}
	result, err := client.Transaction(ctx, body)
	if err != nil || len(result.Results) != 2 || result.Results[1].Key != "bytes" || result.Results[1].Version < 1 || result.Replayed {
		t.Fatalf("transaction: %+v, %v", result, err)
	}
	again, err := client.Transaction(ctx, body)
	if err != nil || !again.Replayed || len(again.Results) != 2 || again.Results[0] != result.Results[0] {
		t.Errorf("the same transaction: %+v, %v", again, err)
	}
	for key, want := range map[string]string{"one json": `{"tag":"<b>&"}`, "two bytes": "\x00\xff"} {
		resource, key, _ := strings.Cut(key, " ")
		if record, err := client.Get(ctx, resource, key); err != nil || string(record.Value) != want {
			t.Errorf("%s: got %q, %v, want %q", key, record.Value, err, want)
		}
	}

	sequence = 2 // of both claims
	body.Ops[1] = api.Op{Op: "delete", Resource: "two", Key: "missing"}
	body.Ops[0].IfVersion = nil
	_, err = client.Transaction(ctx, body)
	wantRefused(t, err, lockclient.ErrNotFound)
	body.Ops[1] = api.Op{Op: "delete", Resource: "two", Key: "bytes", IfVersion: new(int64)}
	_, err = client.Transaction(ctx, body)
	if problem := wantProblem(t, err, lockclient.ErrVersionMismatch); problem.Op == nil || *problem.Op != 1 {
		t.Errorf("%+v does not tell which operation was refused", problem)
	}
}
