package gateway

import (
	"net/http"
	"strconv"
	"testing"

	"github.com/fencegate/fencegate/gateway/api"
)

// A write with If-Match or If-None-Match is applied if the record has such a version. A record that was deleted and
// created again matches none of its earlier versions.
func TestConditionsOfWrites(t *testing.T) {
	h := newHarness(t, Config{})
	lease := h.acquire(t, "job", "worker")
	sequence := int64(0)
	write := func(method, condition string) answer {
		sequence++
		value := "value " + strconv.FormatInt(sequence, 10)
		return h.send(t, method, recordPath("job", "k"), value, token(lease, sequence), condition)
	}
	mismatch := func(condition string, version int64) {
		t.Helper()
		h.unchanged(t, func() {
			for _, method := range []string{http.MethodPut, http.MethodDelete} {
				got := write(method, condition)
				problem := expectProblem(t, got, api.CodeVersionMismatch)
				if value(problem.Version) != version || problem.Status != http.StatusPreconditionFailed {
					t.Errorf("%s: want status 412 and version %d, got %s", condition, version, got.body)
				}
			}
		})
	}
	mismatch(`If-Match: "1"`, 0)
	mismatch(`If-Match: *`, 0)
	as[api.WriteResult](t, write(http.MethodPut, `If-None-Match: *`), http.StatusCreated)
	mismatch(`If-None-Match: *`, 1)
	mismatch(`If-Match: "2"`, 1)
	mismatch(`If-Match: "9223372036854775807"`, 1)
	as[api.WriteResult](t, write(http.MethodPut, `If-Match: "1"`), http.StatusOK)
	as[api.WriteResult](t, write(http.MethodPut, `If-Match: *`), http.StatusOK)
	mismatch(`If-Match: "2"`, 3)
	as[api.WriteResult](t, write(http.MethodDelete, `If-Match: "3"`), http.StatusOK)
	as[api.WriteResult](t, write(http.MethodPut, `If-None-Match: *`), http.StatusCreated)
	mismatch(`If-Match: "1"`, 5)
	mismatch(`If-Match: "3"`, 5)
}

func TestConditionsOfReads(t *testing.T) {
	h, _ := newBusyHarness(t, Config{})
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
		`If-Match: "1"`:                 http.StatusOK,
		`If-Match: *`:                   http.StatusOK,
		`If-Match: "9", "1"`:            http.StatusOK,
	} {
		for _, method := range []string{http.MethodGet, http.MethodHead} {
			got := h.send(t, method, recordPath("job", "k"), "", condition)
			body := "value"
			if status == http.StatusNotModified || method == http.MethodHead {
				body = ""
			}
			if got.status != status || string(got.body) != body || got.header.Get("ETag") != `"1"` {
				t.Errorf("%s with %s: want %d %q, got %d %q with the ETag %s",
					method, condition, status, body, got.status, got.body, got.header.Get("ETag"))
			}
		}
	}
	for _, match := range []string{`"2"`, `W/"1"`, "1", ""} {
		problem := expectProblem(t, h.get(t, recordPath("job", "k"), "If-Match: "+match), api.CodeVersionMismatch)
		if value(problem.Version) != int64(1) {
			t.Errorf("If-Match: %s: the version is %v, want 1", match, value(problem.Version))
		}
	}
}
