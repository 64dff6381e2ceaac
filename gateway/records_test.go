package gateway

import (
	"crypto/rand"
	"net/http"
	"strconv"
	"testing"

	"github.com/fencegate/fencegate/gateway/api"
)

// Values are any bytes. They are returned as they were stored, with their content type.
func TestValues(t *testing.T) {
	h := newHarness(t, Config{})
	lease := h.acquire(t, "job", "worker")
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	random := make([]byte, 1<<20)
	_, _ = rand.Read(random)
	sequence := int64(0)
	for name, stored := range map[string]struct{ kind, value string }{
		"empty":              {"", ""},
		"every byte":         {"application/octet-stream", string(every)},
		"invalid UTF-8":      {"text/plain; charset=utf-8", "\xff\xfe"},
		"1 MiB":              {"image/png", string(random)},
		"JSON as written":    {"application/json", " {\"b\": 1.0, \"a\":\t[1e400, \"\\u0000\"]}\n"},
		"JSON by its suffix": {"application/vnd.thing+json; v=1", `"x"`},
		"JSON null":          {"Application/JSON", "null"},
		"type with quotes":   {`multipart/form-data; boundary="a b"`, "x"},
	} {
		sequence++
		var headers []string
		want := "application/octet-stream"
		if stored.kind != "" {
			headers, want = []string{"Content-Type: " + stored.kind}, stored.kind
		}
		got := h.putKey(t, lease, sequence, name, stored.value, headers...)
		version := as[api.WriteResult](t, got, http.StatusCreated).Version
		read, head := h.get(t, recordPath("job", name)), h.send(t, http.MethodHead, recordPath("job", name), "")
		if string(read.body) != stored.value || len(head.body) != 0 {
			t.Errorf("%s: GET returned %d bytes and HEAD %d, want %d and 0",
				name, len(read.body), len(head.body), len(stored.value))
		}
		for _, got := range []answer{read, head} {
			for header, want := range map[string]string{
				"Content-Type":   want,
				"Content-Length": strconv.Itoa(len(stored.value)),
				"ETag":           `"` + strconv.FormatInt(version, 10) + `"`,
				"Fencing-Token":  api.FencingToken{Token: lease.FencingToken, Sequence: &sequence}.String(),
				"Cache-Control":  "no-cache",
				// These keep a browser from running a stored value on the gateway's origin.
				"Content-Security-Policy": "sandbox; default-src 'none'",
				"X-Content-Type-Options":  "nosniff",
			} {
				if value := got.header.Get(header); got.status != http.StatusOK || value != want {
					t.Errorf("%s: %s returned %d with %s %q, want %q", name, got.request, got.status, header, value, want)
				}
			}
		}
	}
	as[api.WriteResult](t, h.put(t, h.acquire(t, "other", "worker"), 0, "x"), http.StatusCreated)
	unnumbered := h.get(t, recordPath("other", "k")).header.Get("Fencing-Token")
	if want := strconv.FormatInt(h.fence(t, "other").LastToken, 10); unnumbered != want {
		t.Errorf("a record written without a sequence has the Fencing-Token %q, want %q", unnumbered, want)
	}
}

func TestReadOfNoRecord(t *testing.T) {
	h := newHarness(t, Config{})
	h.acquire(t, "job", "worker")
	expectProblem(t, h.get(t, recordPath("job", "k")), api.CodeNotFound)
	expectProblem(t, h.get(t, recordPath("nowhere", "k"), "If-Match: *"), api.CodeNotFound)
	head := h.send(t, http.MethodHead, recordPath("job", "k"), "")
	if head.status != http.StatusNotFound || head.header.Get("Content-Type") != api.ProblemContentType ||
		len(head.body) != 0 {
		t.Errorf("HEAD returned %d %v with %d bytes, want the headers of a problem", head.status, head.header, len(head.body))
	}
}
