package lockclient_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"testing"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/internal/testenv/await"
	"github.com/fencegate/fencegate/lockclient"
)

// A holder reads a record, changes it, and writes it back under the version that it has read.
func TestGetJSON(t *testing.T) {
	t.Parallel()
	client, lock := shared(t)
	ctx := await.Context(t)
	lease := mustAcquire(t, client, lock)
	type balance struct{ Cents int }
	var got balance
	wantErr(t, "GetJSON of no record", second(lease.GetJSON(ctx, "balance", &got)), lockclient.ErrNotFound)
	check(t, second(lease.PutJSON(ctx, "balance", balance{100})))
	record, err := lease.GetJSON(ctx, "balance", &got)
	if err != nil || got.Cents != 100 || record.ContentType != "application/json" {
		t.Fatalf("GetJSON returned %+v, %+v, %v, expected 100 cents", got, record, err)
	}
	got.Cents -= 10
	check(t, second(lease.PutJSON(ctx, "balance", got, lockclient.IfVersion(record.Version))))
	again, err := lease.Get(ctx, "balance", lockclient.Durable())
	if err != nil || string(again.Value) != `{"Cents":90}` || again.Version <= record.Version {
		t.Errorf("Get returned %s, %v, expected 90 cents in a newer version", again.Value, err)
	}
	check(t, second(lease.Put(ctx, "text", []byte("no JSON"))))
	var malformed *json.SyntaxError
	if err := second(lease.GetJSON(ctx, "text", &got)); !errors.As(err, &malformed) {
		t.Errorf("GetJSON of a text returned %v, expected a syntax error", err)
	}
}

// A read of a lease is sent again when no gateway can serve it at first.
func TestGetIsRetried(t *testing.T) {
	t.Parallel()
	reads := 0
	url, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			_ = json.NewEncoder(w).Encode(api.Lease{Lock: "a", LeaseID: "l", FencingToken: 1, TTLMS: 60_000})
			return
		}
		if reads++; reads == 1 {
			unavailable(api.OutcomeNotApplied)(w, r)
			return
		}
		w.Header().Set("ETag", `"1"`)
		w.Header().Set(api.HeaderFencingToken, "1.1")
		_, _ = w.Write([]byte("v"))
	})
	client := newClient(t, url)
	lease := mustAcquire(t, client, "a")
	if record, err := lease.Get(await.Context(t), "k"); err != nil || string(record.Value) != "v" || reads != 2 {
		t.Errorf("Get returned %q, %v after %d requests, expected v after 2", record.Value, err, reads)
	}
}
