package gateway

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/fencegate/fencegate/gateway/api"
)

// Each line gets what a single write would have got, whatever became of the others.
func TestBulk(t *testing.T) {
	h := newHarness(t, Config{})
	a, b := h.acquire(t, "accounts/1", "clerk"), h.acquire(t, "accounts/2", "clerk")
	old := h.acquire(t, "accounts/3", "old")
	h.release(t, old)
	h.acquire(t, "accounts/3", "new")
	body := putLine(a, 1, "balance", ` {"b": 1.0, "a":null} `) + // 1
		putLine(b, 1, "balance", "2") +
		"\n \r\n" + // 3 and 4 are empty
		putLine(a, 2, "balance", "3") +
		putLine(a, 2, "balance", "3") + // 6: again
		putLine(a, 2, "balance", "4") +
		putLine(old, 1, "balance", "5") + // 8
		"no JSON\n" +
		strings.Replace(putLine(a, 3, "balance", "6"), "}", `,"if_version":7}`, 1) + // 10
		fmt.Sprintf(`{"op":"delete","resource":"accounts/1","key":"none","fencing_token":%d,"sequence":3}`+"\r\n", a.FencingToken) +
		fmt.Sprintf(`{"op":"delete","resource":"accounts/1","key":"balance","fencing_token":%d,"sequence":3,"lease_id":%q}`+"\n", a.FencingToken, a.LeaseID) + // 12
		fmt.Sprintf(`{"op":"put","resource":"accounts/2","key":"photo","fencing_token":%d,"sequence":2,"value_base64":"AP8=","content_type":"image/png"}`, b.FencingToken)
	verdicts, end := h.bulk(t, body)
	want := []struct {
		line    int64
		status  int
		code    api.Code
		version int64
	}{
		{1, 201, "", 1}, {2, 201, "", 1}, {5, 200, "", 2}, {6, 200, "", 2}, {7, 412, api.CodeTokenStale, 0}, {8, 412, api.CodeTokenStale, 0},
		{9, 400, api.CodeInvalidRequest, 0}, {10, 412, api.CodeVersionMismatch, 2}, {11, 404, api.CodeNotFound, 0}, {12, 200, "", 3}, {13, 201, "", 2},
	}
	if len(verdicts) != len(want) || end.End != api.BulkComplete || end.NextLine != 14 {
		t.Fatalf("%d verdicts, and the end %s", len(verdicts), end.text)
	}
	for i, got := range verdicts {
		version := int64(0)
		if got.Version != nil {
			version = *got.Version
		}
		if w := want[i]; got.Line != w.line || got.Status != w.status || got.Code != w.code || version != w.version {
			t.Errorf("the verdict is %s, want %+v", got.text, w)
		}
	}
	if replay := verdicts[3]; replay.Replayed == nil || !*replay.Replayed || *verdicts[2].Replayed {
		t.Errorf("sent again: %s", replay.text)
	}
	if reused, superseded := verdicts[4], verdicts[5]; reused.Reason != "reused" || *reused.LastSequence != 2 || superseded.Reason != "superseded" || *superseded.GrantedToken <= old.FencingToken {
		t.Errorf("stale: %s %s", reused.text, superseded.text)
	}
	if got := h.get(t, recordPath("accounts/2", "photo")); string(got.body) != "\x00\xff" || got.header.Get("Content-Type") != "image/png" {
		t.Errorf("the photo is %q of type %s", got.body, got.header.Get("Content-Type"))
	}
	if got := h.get(t, recordPath("accounts/2", "balance")); string(got.body) != "2" || got.header.Get("Content-Type") != "application/json" {
		t.Errorf("the balance is %q of type %s", got.body, got.header.Get("Content-Type"))
	}
	refused(t, h.get(t, recordPath("accounts/1", "balance")), api.CodeNotFound)
}

// A value is stored as it is written in its line.
func TestBulkKeepsValues(t *testing.T) {
	h := newHarness(t, Config{})
	lease := h.acquire(t, "job", "worker")
	for i, value := range []string{`{"b": 1.0,  "a":"\u00e9"}`, `null`, `"x"`, `[]`, `1e40`, strings.Repeat(" ", 100) + "1"} {
		if verdicts, _ := h.bulk(t, putLine(lease, int64(i)+1, "k", value)); verdicts[0].Code != "" {
			t.Fatal(verdicts[0].text)
		}
		if got := h.get(t, recordPath("job", "k")); string(got.body) != strings.TrimSpace(value) {
			t.Errorf("%q came back as %q", value, got.body)
		}
	}
}

// A client that sends a line and waits has its verdict at once, however long the stream is open.
func TestBulkAnswersAtOnce(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		h := newHarness(t, Config{})
		h.http = newHTTPClient(t, http2)
		lease := h.acquire(t, "job", "worker")
		stream := h.openBulk(t)
		if stream.response.ProtoMajor != map[bool]int{false: 1, true: 2}[http2] {
			t.Fatal(stream.response.Proto)
		}
		for i := range int64(20) {
			stream.write(t, putLine(lease, i+1, "k", "1"))
			stream.verdict(t, i+1, map[bool]int{true: 201, false: 200}[i == 0])
		}
		_ = stream.send.Close()
		stream.ended(t, api.BulkComplete, 21)
	}
}

// Many lines of few resources are decided in their order, and every one is answered in its place.
func TestBulkOrder(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		h := newHarness(t, Config{})
		h.http = newHTTPClient(t, http2)
		const resources, each = 10, 1000
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
			t.Fatalf("%d verdicts, and the end %s", len(verdicts), end.text)
		}
		admitted := 0
		for i, got := range verdicts {
			malformed := i == resources*(each/2+1)
			switch {
			case got.Line != int64(i)+1:
				t.Fatalf("verdict %d is %s", i+1, got.text)
			case malformed && got.Code != api.CodeInvalidRequest, !malformed && got.Code != "":
				t.Fatalf("the verdict is %s", got.text)
			case !malformed && *got.Version != int64(admitted/resources)+1:
				t.Fatalf("the verdict is %s, want version %d", got.text, admitted/resources+1)
			case !malformed:
				admitted++
			}
		}
		if got := h.get(t, recordPath("job/0", "k")); string(got.body) != "999" {
			t.Errorf("the last value is %s", got.body)
		}
	}
}

func TestBulkRefusesTheWhole(t *testing.T) {
	h := newHarness(t, Config{})
	kind := "Content-Type: " + api.BulkContentType
	if got := h.post(t, "/v1/writes", "{}"); refused(t, got, api.CodeInvalidRequest).Status != http.StatusUnsupportedMediaType {
		t.Errorf("JSON: %d", got.status)
	}
	refused(t, h.send(t, http.MethodPost, "/v1/writes?atomic=1", "", kind), api.CodeInvalidRequest)
	refused(t, h.send(t, http.MethodPut, "/v1/writes", "", kind), api.CodeInvalidRequest)
	if verdicts, end := h.bulk(t, ""); len(verdicts) != 0 || end.End != api.BulkComplete || end.NextLine != 1 {
		t.Errorf("nothing: %v %s", verdicts, end.text)
	}
	h.gateway.bulkStreams.Store(bulkStreamsMax)
	if got := refused(t, h.send(t, http.MethodPost, "/v1/writes", "", kind), api.CodeUnavailable); got.Outcome != api.OutcomeNotApplied {
		t.Errorf("one stream too many: %+v", got)
	}
	h.gateway.bulkStreams.Store(0)
	h.bulk(t, "")
}
