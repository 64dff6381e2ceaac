package gateway

import (
	"net/http"
	"strconv"
	"testing"

	"github.com/fencegate/fencegate/gateway/api"
)

func TestConditionsOfWrites(t *testing.T) {
	h := newHarness(t, Config{})
	lease := h.acquire(t, "job", "worker")
	sequence := int64(0)
	write := func(method, condition string) answer {
		sequence++
		return h.send(t, method, recordPath("job", "k"), "value "+strconv.FormatInt(sequence, 10), token(lease, sequence), condition)
	}
	mismatch := func(condition string, version int64) {
		t.Helper()
		h.unchanged(t, func() {
			for _, method := range []string{http.MethodPut, http.MethodDelete} {
				got := write(method, condition)
				problem := refused(t, got, api.CodeVersionMismatch)
				if problem.Version == nil || *problem.Version != version || problem.Status != http.StatusPreconditionFailed {
					t.Errorf("%s: version is not %d: %s", condition, version, got.body)
				}
			}
		})
	}
	// There is no record.
	mismatch(`If-Match: "1"`, 0)
	mismatch(`If-Match: *`, 0)
	as[api.WriteResult](t, write(http.MethodPut, `If-None-Match: *`), http.StatusCreated)
	// It has version 1.
	mismatch(`If-None-Match: *`, 1)
	mismatch(`If-Match: "2"`, 1)
	mismatch(`If-Match: "9223372036854775807"`, 1)
	as[api.WriteResult](t, write(http.MethodPut, `If-Match: "1"`), http.StatusOK)
	as[api.WriteResult](t, write(http.MethodPut, `If-Match: *`), http.StatusOK)
	mismatch(`If-Match: "2"`, 3)
	as[api.WriteResult](t, write(http.MethodDelete, `If-Match: "3"`), http.StatusOK)
	// Deleted and made again, it can't be taken for the old one.
	as[api.WriteResult](t, write(http.MethodPut, `If-None-Match: *`), http.StatusCreated)
	mismatch(`If-Match: "1"`, 5)
	mismatch(`If-Match: "3"`, 5)
}

func TestConditionsOfReads(t *testing.T) {
	h := newHarness(t, Config{})
	lease := h.acquire(t, "job", "worker")
	as[api.WriteResult](t, h.put(t, lease, 5, "value"), http.StatusCreated)
	for condition, status := range map[string]int{
		`If-None-Match: "1"`:            http.StatusNotModified,
		`If-None-Match: W/"1"`:          http.StatusNotModified,
		`If-None-Match: "7" , W/"1"`:    http.StatusNotModified,
		`If-None-Match: *`:              http.StatusNotModified,
		`If-None-Match: "2"`:            http.StatusOK,
		`If-None-Match: "01"`:           http.StatusOK,
		`If-None-Match: 1`:              http.StatusOK,
		`If-None-Match: garbage, "11",`: http.StatusOK,
		`If-None-Match: `:               http.StatusOK,
	} {
		for _, method := range []string{http.MethodGet, http.MethodHead} {
			got := h.send(t, method, recordPath("job", "k"), "", condition)
			body := "value"
			if status == http.StatusNotModified || method == http.MethodHead {
				body = ""
			}
			if got.status != status || string(got.body) != body || got.header.Get("ETag") != `"1"` {
				t.Errorf("%s with %s: %d, ETag %s, %q", method, condition, got.status, got.header.Get("ETag"), got.body)
			}
		}
	}
}
