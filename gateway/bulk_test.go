package gateway

import (
	"cmp"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	pgtest "github.com/fencegate/fencegate/internal/test/testenv/postgres"
	"github.com/fencegate/fencegate/lockclient/api"
	"github.com/fencegate/fencegate/store/engine"
	"github.com/fencegate/fencegate/store/groupcommit"
	"github.com/fencegate/fencegate/store/postgres"
)

// Each write gets the result that a single write would get, whatever those of the others.
func TestBulk(t *testing.T) {
	h := newHarness(t, Config{})
	a, b := h.acquire(t, "accounts/1", "clerk"), h.acquire(t, "accounts/2", "clerk")
	old := h.acquire(t, "accounts/3", "old")
	h.release(t, old)
	h.acquire(t, "accounts/3", "new")
	remove := func(key, more string) string {
		return fmt.Sprintf(`{"op":"delete","resource":"accounts/1","key":%q,"fencing_token":%d,"sequence":3%s}`+"\n",
			key, a.FencingToken, more)
	}
	results := h.bulk(t, putLine(a, 1, "balance", ` {"b": 1.0, "a":null} `)+
		putLine(b, 1, "balance", ` {"b": 1.0,  "a":"\u00e9"} `)+
		putLine(a, 2, "balance", "3")+
		putLine(a, 2, "balance", "3")+ // again
		putLine(a, 2, "balance", "4")+
		putLine(old, 1, "balance", "5")+
		"7\n"+
		strings.Replace(putLine(a, 3, "balance", "6"), "}", `,"if_version":7}`, 1)+
		remove("none", "")+
		remove("balance", fmt.Sprintf(`,"lease_id":%q`, a.LeaseID))+
		fmt.Sprintf(`{"op":"put","resource":"accounts/2","key":"photo","fencing_token":%d,"sequence":2,`+
			`"value_base64":"AP8=","content_type":"image/png"}`, b.FencingToken))
	want := []struct {
		status  int
		code    api.Code
		version int64
	}{
		{201, "", 1}, {201, "", 1}, {200, "", 2}, {200, "", 2}, {412, api.CodeTokenStale, 0}, {412, api.CodeTokenStale, 0},
		{400, api.CodeInvalidRequest, 0}, {412, api.CodeVersionMismatch, 2}, {404, api.CodeNotFound, 0}, {200, "", 3},
		{201, "", 2},
	}
	if len(results) != len(want) {
		t.Fatalf("received %d results, want %d", len(results), len(want))
	}
	for i, got := range results {
		var version int64
		switch {
		case got.Result != nil:
			version = got.Result.Version
		case got.Problem.Version != nil:
			version = *got.Problem.Version
		}
		if got.Status != want[i].status || got.Code != want[i].code || version != want[i].version {
			t.Errorf("result %d is %s, want %+v", i, encode(got.BulkResult), want[i])
		}
	}
	if !results[3].Result.Replayed || results[2].Result.Replayed {
		t.Errorf("the result of the write sent again is %+v, want a replay", results[3].Result)
	}
	if reused, superseded := results[4].Problem, results[5].Problem; reused.Reason != "reused" ||
		*reused.LastSequence != 2 || superseded.Reason != "superseded" || *superseded.GrantedToken <= old.FencingToken {
		t.Errorf("the problems of stale writes are %+v %+v, want reused and superseded", reused, superseded)
	}
	h.expectRecord(t, recordPath("accounts/2", "photo"), "\x00\xff", "image/png")
	h.expectRecord(t, recordPath("accounts/2", "balance"), `{"b": 1.0,  "a":"\u00e9"}`, "application/json") // as it was written
	expectProblem(t, h.get(t, recordPath("accounts/1", "balance")), api.CodeNotFound)
}

// An array that is malformed or over a limit changes nothing.
func TestBulkRefusesArrays(t *testing.T) {
	h := newHarness(t, Config{})
	lease := h.acquire(t, "job", "worker")
	good := strings.TrimSpace(putLine(lease, 1, "k", "1"))
	many := func(count int) string { return "[" + strings.Repeat(good+",", count-1) + good + "]" }
	for body, detail := range map[string]string{
		many(api.BulkWritesMax + 1): "more than 1000 writes", "": "must be a JSON array", "null": "must be a JSON array",
		good: "must be a JSON array", "[" + good: "not JSON", "[" + good + ",]": "not JSON", "[{]": "not JSON",
		"[" + good + "] 1": "something follows",
	} {
		problem := expectProblem(t, h.post(t, "/v1/writes", body), api.CodeInvalidRequest)
		if !strings.Contains(problem.Detail, detail) {
			t.Errorf("%.100s was refused with %s, want %s", body, problem.Detail, detail)
		}
	}
	long := "[" + good + strings.Repeat(" ", api.BulkBytesMax) + "]"
	expectProblem(t, h.post(t, "/v1/writes", long), api.CodeTooLarge)
	got := h.send(t, http.MethodPost, "/v1/writes", many(1), "Content-Type: application/x-ndjson")
	if expectProblem(t, got, api.CodeInvalidRequest); got.status != http.StatusUnsupportedMediaType {
		t.Errorf("another type than JSON was answered %d, want 415", got.status)
	}
	expectProblem(t, h.post(t, "/v1/writes?atomic=1", many(1)), api.CodeInvalidRequest)
	expectProblem(t, h.get(t, recordPath("job", "k")), api.CodeNotFound)
	if results := h.bulk(t, ""); len(results) != 0 {
		t.Errorf("the results of no writes are %s", encode(results))
	}
	if results := bulkAnswers(t, h.post(t, "/v1/writes", many(api.BulkWritesMax))); len(results) != api.BulkWritesMax {
		t.Errorf("as many as there may be have %d results", len(results))
	}
}

// The problem of an invalid write names the field, and does not stop the next one. invalidTransactions has the values
// that operations and tokens must not have.
func TestBulkInvalidWrites(t *testing.T) {
	const limit = 2048
	h := newHarness(t, Config{BodyBytesMax: limit})
	lease := h.acquire(t, "job", "worker")
	line := func(more string) string {
		return fmt.Sprintf(`{"op":"put","resource":"job","key":"k","fencing_token":%d%s}`, lease.FencingToken, more)
	}
	good := line(`,"value":1`)
	replaced := func(old, with string) string { return strings.Replace(good, old, with, 1) }
	inputs := []struct {
		text, detail string
		code         api.Code
	}{
		{`null`, "must be a JSON object", ""},
		{`{}`, "resource", api.CodeInvalidName},
		{line(`,"value":1,"key":"l"`), "key is there twice", ""},
		{line(`,"value":"` + "\xff" + `"`), "value", ""},
		{line(``), "a put has either value", ""},
		{line(`,"value":1,"sequence":"2"`), "sequence", api.CodeInvalidToken},
		{line(`,"fences":[]`), "no field fences", ""},
		{replaced(`"resource":"job"`, `"resource":"a/fence"`), "resource", api.CodeInvalidName},
		{replaced(`"fencing_token":`, `"fencing_token":-`), "fencing_token", api.CodeInvalidToken},
		{line(`,"value":"` + strings.Repeat("x", limit-1) + `"`), "2048 bytes (--body-bytes-max)", api.CodeTooLarge},
	}
	var lines strings.Builder
	for i, input := range inputs {
		lines.WriteString(input.text + "\n" + putLine(lease, int64(i)+1, "k", "1"))
	}
	results := h.bulk(t, lines.String())
	for i, input := range inputs {
		got, code := results[2*i], cmp.Or(input.code, api.CodeInvalidRequest)
		if got.Code != code || !strings.Contains(got.Problem.Detail, input.detail) || got.Problem.Retryable {
			t.Errorf("%.200s: the result is %s, want %s with %q", input.text, encode(got.BulkResult), code, input.detail)
		}
		if next := results[2*i+1]; next.Code != "" {
			t.Errorf("the result after %.200s is %s, want it admitted", input.text, encode(next.BulkResult))
		}
	}
}

// Arrays wait where the queue of writes is full. No write is refused, and those of a resource keep their order.
func TestBulkWaitsForRoom(t *testing.T) {
	h := newCramped(t, 4)
	const arrays, each = 6, 100
	var sending sync.WaitGroup
	for i := range arrays {
		lease := h.acquire(t, fmt.Sprintf("job/%d", i), "worker")
		sending.Go(func() {
			var lines strings.Builder
			for n := range int64(each) {
				lines.WriteString(putLine(lease, n+1, "k", fmt.Sprint(n)))
			}
			for n, got := range h.bulk(t, lines.String()) {
				if got.Code != "" || got.Result.Version != int64(n)+1 {
					t.Errorf("result %d is %s, want version %d", n, encode(got.BulkResult), n+1)
					return
				}
			}
		})
	}
	sending.Wait()
	if h.engine.GroupStats().Refused == 0 {
		t.Error("the queue was never full")
	}
}

// After a write with an unknown outcome, no later write of its resource is admitted, whether it was submitted before or
// not. A holder may conclude from an admitted write that the earlier ones were applied, or refused for their data.
func TestBulkAfterAnUndecidedWrite(t *testing.T) {
	database := postgres.Config{DatabaseURL: pgtest.Migrated(t)}
	lease := newHarnessOn(t, Config{}, database).acquire(t, "job", "worker")
	database.StatementTimeout = 150 * time.Millisecond
	h := newGatewayWith(t, Config{}, database, engine.Config{Group: groupcommit.Config{QueueMax: 40}})
	h.client = serve(t, conforming(t, h.gateway))
	sequence, undecided := int64(0), 0
	// The first round holds the fence until a write fails. The others unlock it about that time.
	var patience time.Duration
	const rounds = 8
	for round := range rounds {
		unlock := sync.OnceFunc(h.holdFence(t, "job"))
		var lines strings.Builder
		for range 300 {
			sequence++
			lines.WriteString(putLine(lease, sequence, "k", "1"))
		}
		begun := time.Now()
		if round > 0 {
			time.AfterFunc(patience-10*time.Millisecond+time.Duration(round)*time.Millisecond, unlock)
		}
		failed := false
		for _, got := range h.bulk(t, lines.String()) {
			if got.Code != "" && got.Code != api.CodeUnavailable || failed && got.Code == "" {
				t.Fatalf("a result is %s, after an undecided one: %v", encode(got.BulkResult), failed)
			}
			failed = failed || got.Code != ""
		}
		if round == 0 {
			patience = time.Since(begun)
		}
		if failed {
			undecided++
		}
		unlock()
	}
	if t.Logf("in %d of %d rounds a write was undecided", undecided, rounds); undecided == 0 {
		t.Error("no write was undecided")
	}
}
