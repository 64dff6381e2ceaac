package gateway

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/fencegate/fencegate/gateway/api"
)

// lateBody is a body that arrives after the end of all work that began before it.
type lateBody struct {
	io.Reader
	gateway *Gateway
}

func (b *lateBody) Read(into []byte) (int, error) {
	b.gateway.EndWork()
	return b.Reader.Read(into)
}

// The RequestTimeout begins when the body has arrived: a slow upload leaves the work its whole time.
func TestWorkBeginsAfterTheBody(t *testing.T) {
	h := newHarness(t, Config{Terraform: true})
	lease := h.acquire(t, "job", "w")
	h.terraform("state").mustLock(t, "a")
	token := strconv.FormatInt(lease.FencingToken, 10)
	for _, of := range []struct{ method, path, body string }{
		{"POST", "/v1/locks/late/acquire", `{"owner_id":"w"}`},
		{"POST", "/v1/locks/job/renew", refOf(lease)},
		{"PUT", "/v1/resources/job/records/k", "value"},
		{"POST", "/v1/transactions", `{"fences":[{"resource":"job","fencing_token":` + token + `,"sequence":7}],` +
			`"ops":[{"op":"put","resource":"job","key":"k","value":1}]}`},
		{"POST", "/v1/sessions", `{"owner_id":"w"}`},
		{"POST", "/v1/elections/led/campaign", `{"candidate":"w"}`},
		{"PUT", "/v1/policies/late", `{"require_lease_id":true}`},
		{"POST", "/v1/terraform/state?ID=a", stateText(1, "x")},
		{"POST", "/v1/terraform/state/unlock", lockBody("a")},
		{"POST", "/v1/locks/job/release", refOf(lease)},
	} {
		r := httptest.NewRequest(of.method, of.path, &lateBody{strings.NewReader(of.body), h.gateway})
		r.ContentLength = int64(len(of.body))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set(api.HeaderFencingToken, token+".1")
		if of.method == http.MethodPut && strings.Contains(of.path, "/records/") {
			r.Header.Set("Content-Type", "text/plain")
		}
		_ = h.gateway.Work(r) // work that began before
		w := httptest.NewRecorder()
		h.gateway.ServeHTTP(w, r)
		if w.Code >= http.StatusBadRequest {
			t.Errorf("%s %s with a body that came late: answered %d %s", of.method, of.path, w.Code, w.Body)
		}
	}
}
