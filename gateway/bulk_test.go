package gateway

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/gateway/writes"
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
