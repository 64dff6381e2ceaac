package sdk

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"testing"

	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/lockclient"
	"github.com/fencegate/fencegate/lockclient/api"
)

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

func TestNamesArriveAsTheyWereGiven(t *testing.T) {
	t.Parallel()
	var raw, decoded string
	url, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		raw, decoded = r.URL.EscapedPath(), r.URL.Path
		writeProblem(w, api.Problem{Status: 404, Code: api.CodeNotFound})
	})
	client := newAPI(t, url+"/behind%2Fproxy/")

	for name, path := range map[string]string{
		"a b/ü?#%;,&=+$": "a%20b/%C3%BC%3F%23%25%3B%2C&=+$",
		"a%2Fb":          "a%252Fb",
		"a/b..c":         "a/b..c",
		"\xff\n":         "%FF%0A",
	} {
		_, err := client.Get(context.Background(), name, name)
		if !errors.Is(err, lockclient.ErrNotFound) {
			t.Errorf("%q: got %v, want the server's not_found", name, err)
		}
		if want := "/behind%2Fproxy/v1/resources/" + path + "/records/" + path; raw != want {
			t.Errorf("%q: the path was %s, want %s", name, raw, want)
		}
		if want := "/behind/proxy/v1/resources/" + name + "/records/" + name; decoded != want {
			t.Errorf("%q: the path was read as %s, want %s", name, decoded, want)
		}
	}
}

func TestNamesThatWouldArriveAsOthersAreNotSent(t *testing.T) {
	t.Parallel()
	url, _ := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("%s %s was sent", r.Method, r.URL.EscapedPath())
	})
	client, ctx := newAPI(t, url), context.Background()

	for _, name := range []string{
		"", "/", "/a", "a/", "a//b", ".", "..", "a/../b", "./a", "a/watch", "records", "a/records/b", "fence/x",
		"acquire", "renew", "release", "break",
	} {
		for call, err := range map[string]error{
			"Lock":    second(client.Lock(ctx, name)),
			"Acquire": second(client.Acquire(ctx, name, api.AcquireRequest{OwnerID: "w"})),
			"Put":     second(client.Put(ctx, "fine", name, lockclient.Write{})),
			"Delete":  second(client.Delete(ctx, name, "fine", lockclient.Write{})),
			"Records": second(client.Records(ctx, name, lockclient.RecordsQuery{})),
		} {
			wantErr(t, fmt.Sprintf("%s of %q", call, name), err, lockclient.ErrInvalidName)
		}
	}
}

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
