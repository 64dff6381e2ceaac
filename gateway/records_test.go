package gateway

import (
	"bytes"
	"crypto/rand"
	"net/http"
	"strconv"
	"testing"

	"github.com/fencegate/fencegate/gateway/api"
)

// Values are any bytes, and come back as they were stored, with their type.
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
		t.Run(name, func(t *testing.T) {
			sequence++
			headers := []string{token(lease, sequence)}
			want := "application/octet-stream"
			if stored.kind != "" {
				headers, want = append(headers, "Content-Type: "+stored.kind), stored.kind
			}
			got := h.send(t, http.MethodPut, recordPath("job", name), stored.value, headers...)
			result := as[api.WriteResult](t, got, http.StatusCreated)

			read := h.get(t, recordPath("job", name))
			if read.status != http.StatusOK || !bytes.Equal(read.body, []byte(stored.value)) || read.header.Get("Content-Type") != want {
				t.Errorf("%d, %s, %d bytes of %d", read.status, read.header.Get("Content-Type"), len(read.body), len(stored.value))
			}
			checkValueHeaders(t, read, lease, sequence, result.Version)

			head := h.send(t, http.MethodHead, recordPath("job", name), "")
			if head.status != http.StatusOK || len(head.body) != 0 || head.header.Get("Content-Length") != strconv.Itoa(len(stored.value)) ||
				head.header.Get("Content-Type") != want {
				t.Errorf("HEAD: %d %v", head.status, head.header)
			}
			checkValueHeaders(t, head, lease, sequence, result.Version)
		})
	}
}

// checkValueHeaders also holds what keeps a browser from running somebody's value on the gateway's origin.
func checkValueHeaders(t *testing.T, got answer, lease api.Lease, sequence, version int64) {
	t.Helper()
	for name, want := range map[string]string{
		"ETag":                    `"` + strconv.FormatInt(version, 10) + `"`,
		"Fencing-Token":           api.FencingToken{Token: lease.FencingToken, Sequence: &sequence}.String(),
		"Cache-Control":           "no-cache",
		"Content-Security-Policy": "sandbox; default-src 'none'",
		"X-Content-Type-Options":  "nosniff",
	} {
		if value := got.header.Get(name); value != want {
			t.Errorf("%s: %s is %q, want %q", got.request, name, value, want)
		}
	}
}

func TestReadNothing(t *testing.T) {
	h := newHarness(t, Config{})
	h.acquire(t, "job", "worker")
	refused(t, h.get(t, recordPath("job", "k")), api.CodeNotFound)
	refused(t, h.get(t, recordPath("nowhere", "k")), api.CodeNotFound)
	head := h.send(t, http.MethodHead, recordPath("job", "k"), "")
	if head.status != http.StatusNotFound || head.header.Get("Content-Type") != api.ProblemContentType || len(head.body) != 0 {
		t.Errorf("HEAD: %d %v", head.status, head.header)
	}
}

// The token of a write without a number is shown without one.
func TestFencingTokenOfRecord(t *testing.T) {
	h := newHarness(t, Config{})
	lease := h.acquire(t, "job", "worker")
	as[api.WriteResult](t, h.put(t, lease, 0, "x"), http.StatusCreated)
	if shown := h.get(t, recordPath("job", "k")).header.Get("Fencing-Token"); shown != strconv.FormatInt(lease.FencingToken, 10) {
		t.Errorf("Fencing-Token is %q, want %d", shown, lease.FencingToken)
	}
}
