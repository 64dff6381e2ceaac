package gateway

import (
	"cmp"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fencegate/fencegate/gateway/writes"
	"github.com/fencegate/fencegate/lockclient/api"
)

// Each line gets the verdict that a single write would get, whatever the verdicts on the others.
func TestBulk(t *testing.T) {
	h := newHarness(t, Config{})
	a, b := h.acquire(t, "accounts/1", "clerk"), h.acquire(t, "accounts/2", "clerk")
	old := h.acquire(t, "accounts/3", "old")
	h.release(t, old)
	h.acquire(t, "accounts/3", "new")
	remove := func(key, more string) string {
		return fmt.Sprintf(`{"op":"delete","resource":"accounts/1","key":%q,"fencing_token":%d,"sequence":3%s}`,
			key, a.FencingToken, more)
	}
	body := putLine(a, 1, "balance", ` {"b": 1.0, "a":null} `) + // line 1
		putLine(b, 1, "balance", "2") +
		"\n \r\n" + // lines 3 and 4 are empty
		putLine(a, 2, "balance", "3") +
		putLine(a, 2, "balance", "3") + // line 6: again
		putLine(a, 2, "balance", "4") +
		putLine(old, 1, "balance", "5") + // line 8
		"no JSON\n" +
		strings.Replace(putLine(a, 3, "balance", "6"), "}", `,"if_version":7}`, 1) + // line 10
		remove("none", "") + "\r\n" +
		remove("balance", fmt.Sprintf(`,"lease_id":%q`, a.LeaseID)) + "\n" + // line 12
		fmt.Sprintf(`{"op":"put","resource":"accounts/2","key":"photo","fencing_token":%d,"sequence":2,`+
			`"value_base64":"AP8=","content_type":"image/png"}`, b.FencingToken)
	verdicts, end := h.bulk(t, body)
	want := []struct {
		line    int64
		status  int
		code    api.Code
		version any
	}{
		{1, 201, "", int64(1)}, {2, 201, "", int64(1)}, {5, 200, "", int64(2)}, {6, 200, "", int64(2)},
		{7, 412, api.CodeTokenStale, nil}, {8, 412, api.CodeTokenStale, nil}, {9, 400, api.CodeInvalidRequest, nil},
		{10, 412, api.CodeVersionMismatch, int64(2)}, {11, 404, api.CodeNotFound, nil}, {12, 200, "", int64(3)},
		{13, 201, "", int64(2)},
	}
	if len(verdicts) != len(want) || end.End != api.BulkComplete || end.NextLine != 14 {
		t.Fatalf("received %d verdicts and the end %s, want %d and complete", len(verdicts), end.text, len(want))
	}
	for i, got := range verdicts {
		w := want[i]
		if got.Line != w.line || got.Status != w.status || got.Code != w.code || value(got.Version) != w.version {
			t.Errorf("the verdict is %s, want %+v", got.text, w)
		}
	}
	if replay := verdicts[3]; replay.Replayed == nil || !*replay.Replayed || *verdicts[2].Replayed {
		t.Errorf("the verdict on the line sent again is %s, want a replay", replay.text)
	}
	if reused, superseded := verdicts[4], verdicts[5]; reused.Reason != "reused" || *reused.LastSequence != 2 ||
		superseded.Reason != "superseded" || *superseded.GrantedToken <= old.FencingToken {
		t.Errorf("the verdicts on stale lines are %s %s, want reused and superseded", reused.text, superseded.text)
	}
	h.expectRecord(t, recordPath("accounts/2", "photo"), "\x00\xff", "image/png")
	h.expectRecord(t, recordPath("accounts/2", "balance"), "2", "application/json")
	expectProblem(t, h.get(t, recordPath("accounts/1", "balance")), api.CodeNotFound)
}

// A value is stored as it is written in its line.
func TestBulkKeepsValues(t *testing.T) {
	h := newHarness(t, Config{})
	lease := h.acquire(t, "job", "worker")
	for i, value := range []string{`{"b": 1.0,  "a":"\u00e9"}`, `null`, `"x"`, `[]`, `1e40`,
		strings.Repeat(" ", 100) + "1"} {
		if verdicts, _ := h.bulk(t, putLine(lease, int64(i)+1, "k", value)); verdicts[0].Code != "" {
			t.Fatalf("the verdict on %q is %s, want it admitted", value, verdicts[0].text)
		}
		h.expectRecord(t, recordPath("job", "k"), strings.TrimSpace(value), "application/json")
	}
}

// A client that sends one line and waits gets its verdict at once, while the stream stays open.
func TestBulkAnswersEachLine(t *testing.T) {
	overBoth(t, func(t *testing.T, http2 bool) {
		h := newHarness(t, Config{})
		h.http = newHTTPClient(t, http2)
		lease := h.acquire(t, "job", "worker")
		stream := h.openBulk(t)
		if (stream.response.ProtoMajor == 2) != http2 {
			t.Fatalf("the answer came over %s, want HTTP/2: %v", stream.response.Proto, http2)
		}
		for i := range int64(20) {
			stream.write(t, putLine(lease, i+1, "k", "1"))
			stream.verdict(t, i+1, map[bool]int{true: 201, false: 200}[i == 0])
		}
		_ = stream.send.Close()
		stream.ended(t, api.BulkComplete, 21)
	})
}

// The lines of a resource are applied in their order, and the verdicts have the order of all lines.
func TestBulkOrder(t *testing.T) {
	overBoth(t, func(t *testing.T, http2 bool) {
		h := newHarness(t, Config{})
		h.http = newHTTPClient(t, http2)
		const resources, each = 10, 300
		var body strings.Builder
		var leases []api.Lease
		for i := range resources {
			leases = append(leases, h.acquire(t, fmt.Sprintf("job/%d", i), "worker"))
		}
		for i := range each {
			for _, lease := range leases {
				body.WriteString(putLine(lease, int64(i)+1, "k", fmt.Sprint(i)))
			}
			if i == each/2 {
				body.WriteString("{\n")
			}
		}
		verdicts, end := h.bulk(t, body.String())
		if len(verdicts) != resources*each+1 || end.End != api.BulkComplete {
			t.Fatalf("received %d verdicts and the end %s, want %d and complete", len(verdicts), end.text, resources*each+1)
		}
		admitted := 0
		for i, got := range verdicts {
			malformed := i == resources*(each/2+1)
			switch {
			case got.Line != int64(i)+1, malformed != (got.Code == api.CodeInvalidRequest), !malformed && got.Code != "":
				t.Fatalf("verdict %d is %s, malformed %v", i+1, got.text, malformed)
			case !malformed && *got.Version != int64(admitted/resources)+1:
				t.Fatalf("verdict %d is %s, want version %d", i+1, got.text, admitted/resources+1)
			case !malformed:
				admitted++
			}
		}
		h.expectRecord(t, recordPath("job/0", "k"), fmt.Sprint(each-1), "application/json")
	})
}

// A stream with another content type, a parameter or another method is refused, and one beyond bulkStreamsMax.
func TestBulkRefusesStreams(t *testing.T) {
	h := newHarness(t, Config{})
	kind := "Content-Type: " + api.BulkContentType
	if got := h.post(t, "/v1/writes", "{}"); expectProblem(t, got,
		api.CodeInvalidRequest).Status != http.StatusUnsupportedMediaType {
		t.Errorf("a JSON body was answered %d, want 415", got.status)
	}
	expectProblem(t, h.send(t, http.MethodPost, "/v1/writes?atomic=1", "", kind), api.CodeInvalidRequest)
	expectProblem(t, h.send(t, http.MethodPut, "/v1/writes", "", kind), api.CodeInvalidRequest)
	if verdicts, end := h.bulk(t, ""); len(verdicts) != 0 || end.End != api.BulkComplete || end.NextLine != 1 {
		t.Errorf("the answer to no lines is %v %s, want complete", verdicts, end.text)
	}
	h.gateway.writes.BulkStreams.Store(writes.BulkStreamsMax)
	expectUnavailable(t, h.send(t, http.MethodPost, "/v1/writes", "", kind), api.OutcomeNotApplied)
	h.gateway.writes.BulkStreams.Store(0)
	h.bulk(t, "")
}

// The verdict on an invalid line names the field. The next line is taken. invalidTransactions has the values that
// operations and tokens must not have.
func TestBulkInvalidLines(t *testing.T) {
	h := newHarness(t, Config{})
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
		{`{`, "not JSON", ""},
		{`x`, "must be a JSON object", ""},
		{`null`, "must be a JSON object", ""},
		{`[` + good + `]`, "must be a JSON object", ""},
		{good + good, "not JSON", ""},
		{`{}`, "resource", api.CodeInvalidName},
		{line(`,"value":1,"if_match":1`), "no field if_match", ""},
		{line(`,"value":1,"key":"l"`), "key is there twice", ""},
		{line(`,"value":{"a":1,"a":2}`), "value.a is there twice", ""},
		{line(`,"value":"` + "\xff" + `"`), "value", ""},
		{line(``), "a put has either value", ""},
		{line(`,"value":1,"sequence":"2"`), "sequence", api.CodeInvalidToken},
		{replaced(`"op":"put"`, `"op":"upsert"`), `op is "upsert"`, ""},
		{replaced(`"resource":"job"`, `"resource":"a/fence"`), "resource", api.CodeInvalidName},
		{replaced(`"key":"k"`, `"key":"a//b"`), "key", api.CodeInvalidName},
		{replaced(`"fencing_token":`, `"fencing_token":-`), "fencing_token", api.CodeInvalidToken},
	}
	var body strings.Builder
	for i, input := range inputs {
		body.WriteString(input.text + "\n" + putLine(lease, int64(i)+1, "k", "1"))
	}
	verdicts, _ := h.bulk(t, body.String())
	if len(verdicts) != 2*len(inputs) {
		t.Fatalf("received %d verdicts on %d lines", len(verdicts), 2*len(inputs))
	}
	for i, input := range inputs {
		got, code := verdicts[2*i], cmp.Or(input.code, api.CodeInvalidRequest)
		if got.Status != 400 || got.Code != code || !strings.Contains(got.Detail, input.detail) || got.Retryable {
			t.Errorf("%s: the verdict is %s, want %s with %q", input.text, got.text, code, input.detail)
		}
		if next := verdicts[2*i+1]; next.Code != "" {
			t.Errorf("the verdict on the line after %s is %s, want it admitted", input.text, next.text)
		}
	}
}

// A line over the limit is skipped, in however many parts it arrives. The next line is taken.
func TestBulkLongLines(t *testing.T) {
	const limit = 2048
	h := newHarness(t, Config{BodyBytesMax: limit})
	lease := h.acquire(t, "job", "worker")
	fits := strings.Repeat("x", limit-2)
	for i, body := range []string{
		putLine(lease, 1, "k", `"`+fits+`x"`),
		strings.Repeat("x", 200_000) + "\n",
		strings.Repeat(" ", 200_000) + putLine(lease, 1, "k", "1"),
		strings.Repeat("x", 200_000), // without an end
	} {
		rest := putLine(lease, int64(i)+2, "k", `"`+fits+`"`)
		if !strings.HasSuffix(body, "\n") {
			rest = ""
		}
		verdicts, end := h.bulk(t, body+rest)
		if got := verdicts[0]; got.Line != 1 || got.Status != 413 || got.Code != api.CodeTooLarge ||
			!strings.Contains(got.Detail, "2048 bytes (--body-bytes-max)") {
			t.Errorf("body %d: the verdict is %s, want too_large", i, got.text)
		}
		if rest != "" && (len(verdicts) != 2 || verdicts[1].Code != "" || verdicts[1].Line != 2) ||
			end.End != api.BulkComplete {
			t.Errorf("body %d: then came %v %s, want the next line admitted", i, verdicts[1:], end.text)
		}
	}
	over := fmt.Sprintf(`{"op":"put","resource":"job","key":"k","fencing_token":%d,"sequence":9,"value_base64":"%sAA=="}`,
		lease.FencingToken, strings.Repeat("AAAA", (limit+2)/3))
	if verdicts, _ := h.bulk(t, over); verdicts[0].Code != api.CodeTooLarge {
		t.Errorf("the verdict on base64 of more than the limit is %s, want too_large", verdicts[0].text)
	}
}

// transactionLine is a line that is a transaction of one operation.
func transactionLine(t *testing.T, lease api.Lease, sequence int64, op string) string {
	t.Helper()
	return encode(api.TransactionRequest{Fences: []api.WriteToken{writeToken(lease, sequence)}, Ops: ops(t, op)})
}

// A line of a bulk stream may be a transaction. It is decided after the lines before it, and before those after it. A
// refused one uses no number.
func TestTransactionsInBulk(t *testing.T) {
	h := newTables(t, patientDatabase(t), "accounts/1", "other")
	account, other := h.leases[0], h.leases[1]
	line := func(sequence int64, op string) string { return transactionLine(t, account, sequence, op) }
	row := func(sequence, balance int64) string {
		return line(sequence, fmt.Sprintf(`"op":"upsert",%s,"rows":[{"id":1,"balance":%d}],"conflict":["id"],`+
			`"returning":["balance"]`, onAccount, balance))
	}
	lines := []string{
		putLine(account, 1, "k", "1"), row(2, 10), putLine(other, 1, "k", "1"), row(2, 10), row(2, 11), row(3, -1),
		line(3, `"op":"insert",`+onAccount+`,"rows":[{"id":2}]`),
		line(3, `"op":"update",`+onAccount+`,"where":{"id":1},"set":{"balance":12},"expect_rows":2`),
		row(3, 13), putLine(account, 3, "k", "2"), putLine(account, 4, "k", "2"), line(5, `"op":"insert",`+onAccount),
		strings.Replace(row(5, 14), "{", `{"op":"put",`, 1), `{"fences":[]}`, `{"ops":[]}`,
		`{"ops":[]` + strings.Repeat(" ", 1<<20) + `}`, row(5, 15),
	}
	const result = `"results":[{"op":"upsert","resource":"accounts/1","table":"public.accounts"`
	wants := []string{
		`"status":201,"version":1`,
		`{"line":2,"status":200,` + result + `,"rows":1,"returning":[{"balance":10}]}],"replayed":false}`,
		`"status":201,"version":1`,
		`{"line":4,"status":200,` + result + `}],"replayed":true}`,
		`"code":"token_stale"`,
		`"status":422,"code":"constraint_violation","retryable":false,"op":0,"sqlstate":"23514","table":"public.accounts"` +
			`,"constraint":"accounts_balance_check","detail":`,
		`"code":"token_required","retryable":false,"resource":"accounts/2","op":0,"table":"public.accounts"`,
		`"code":"rows_mismatch","retryable":false,"op":0,"table":"public.accounts","rows":1`,
		`"returning":[{"balance":13}]`, `"code":"token_stale"`, `"version":4`,
		`ops[0]: row must be an object`, `only fences and ops`, `there are 0 fences`, `there are 0 fences`,
		`The transaction is over the limit of 1048576 bytes`,
		`"returning":[{"balance":15}]`,
	}
	verdicts, end := h.bulk(t, strings.ReplaceAll(strings.Join(lines, "\n"), "\n\n", "\n"))
	if len(verdicts) != len(wants) || end.End != api.BulkComplete {
		t.Fatalf("there are %d verdicts and the end %s, want %d", len(verdicts), end.End, len(wants))
	}
	for i, verdict := range verdicts {
		if !strings.Contains(verdict.text, wants[i]) {
			t.Errorf("%.300s was answered %s, want %s in it", lines[i], verdict.text, wants[i])
		}
	}
}

// A transaction that can't be decided ends the stream, and no line after it is applied.
func TestUndecidedTransactionInBulk(t *testing.T) {
	database := patientDatabase(t)
	database.LockTimeout = 200 * time.Millisecond
	h := newTables(t, database, "accounts/1")
	insert := transactionLine(t, h.leases[0], 1, `"op":"insert",`+onAccount+`,"row":{"id":1}`) + "\n"
	unlock := h.hold(t, "lock table public.accounts in share mode")
	verdicts, end := h.bulk(t, insert+putLine(h.leases[0], 2, "k", "1"))
	if len(verdicts) != 1 || verdicts[0].Outcome != api.OutcomeNotApplied || end.End != api.BulkUnavailable {
		t.Errorf("the verdicts are %v, and the end %s, want one that is unavailable", verdicts, end.text)
	}
	if end.NextLine != 2 || h.count(t, "select count(*) from fence.records") > 0 {
		t.Errorf("the end is %s, and a line after the transaction was applied", end.text)
	}
	unlock()
}
