package gateway

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/store"
)

// enumOf returns the values of a schema of openapi.yaml.
func enumOf(t *testing.T, schema string) (values []string) {
	t.Helper()
	described, err := described()
	if err != nil {
		t.Fatal(err)
	}
	for _, value := range described.document.Components.Schemas[schema].Value.Enum {
		values = append(values, fmt.Sprint(value))
	}
	return values
}

// Every code and reason of the API has a kind, and the kinds are those of the API.
func TestKindsOfRejections(t *testing.T) {
	t.Parallel()
	causes := []store.RejectionCause{}
	for _, code := range enumOf(t, "RejectionCode") {
		causes = append(causes, store.RejectionCause{Verdict: store.Verdict(code)})
	}
	for _, reason := range enumOf(t, "StaleReason") {
		causes = append(causes, store.RejectionCause{Verdict: store.VerdictTokenStale, Reason: reason})
	}
	kinds := []string{}
	for _, cause := range causes {
		if !cause.IsKnown() {
			t.Errorf("%s has no kind", cause)
		}
		kinds = append(kinds, string(cause.Kind()))
	}
	slices.Sort(kinds)
	want := enumOf(t, "RejectionKind")
	slices.Sort(want)
	if got := slices.Compact(kinds); !slices.Equal(got, want) || len(want) != len(store.RejectionKinds) {
		t.Errorf("the codes and reasons have the kinds %q, openapi.yaml has %q", got, want)
	}
}

// A rejection has the leases of its writer and of its successor. The kinds are those that lists, summaries, the stream's
// filter and the overview have.
func TestRejectionByID(t *testing.T) {
	h := newHarness(t, Config{})
	h.sample(t) // what comes before the first sample is in no step
	zombie, current := rejectOfMany(t, h)
	path := fmt.Sprintf("/v1/rejections/%d", h.rejections(t, "?kind=zombie").Rejections[0].ID)
	got := as[api.RejectionDetail](t, h.get(t, path), http.StatusOK)
	if got.Rejection.Kind != api.KindZombie || got.Lease == nil || got.Lease.OwnerID != zombie.OwnerID ||
		got.Lease.EndReason != "expired" || got.Successor == nil || got.Successor.FencingToken != current.FencingToken {
		t.Errorf("the zombie's rejection is %s", encode(got))
	}
	path = fmt.Sprintf("/v1/rejections/%d", h.rejections(t, "?kind=numbering").Rejections[0].ID)
	got = as[api.RejectionDetail](t, h.get(t, path), http.StatusOK)
	if got.Rejection.Reason != "reused" || got.Lease == nil || got.Lease.OwnerID != current.OwnerID || got.Successor != nil {
		t.Errorf("the rejection of a used number is %s", encode(got))
	}
	expectProblem(t, h.get(t, "/v1/rejections/999999"), api.CodeNotFound)
	expectProblem(t, h.get(t, "/v1/rejections/ghost"), api.CodeInvalidRequest)
	expectProblem(t, h.get(t, path+"?x=1"), api.CodeInvalidRequest)
	expectProblem(t, h.get(t, "/v1/rejections?kind=ghost"), api.CodeInvalidRequest)

	const want = "map[misuse:2 numbering:1 zombie:2]"
	summary := as[api.RejectionSummary](t, h.get(t, "/v1/rejections/summary"), http.StatusOK)
	if text := fmt.Sprint(summary.ByKind); text != want {
		t.Errorf("the summary has the kinds %s, want %s", text, want)
	}
	if conflicts := h.rejections(t, "?kind=conflict").Rejections; len(conflicts) != 0 {
		t.Errorf("data conflicts are %+v, want none", conflicts)
	}
	totals, err := h.gateway.Metrics.Totals()
	if err != nil {
		t.Fatal(err)
	}
	byKind := map[store.RejectionKind]int64{}
	for class, writes := range totals.Rejected {
		if writes > 0 {
			byKind[class.Kind] += writes
		}
	}
	if text := fmt.Sprint(byKind); text != want {
		t.Errorf("the gateway has counted the kinds %s, want %s", text, want)
	}
}

// A principal gets the same answer for a rejection on a name that it may not see as for one that does not exist.
func TestRejectionByIDHidesOtherNames(t *testing.T) {
	h, admin := newGuarded(t)
	root, eu := h.by(admin), h.by(h.key(t, "eu", "observe:eu"))
	lease := root.acquire(t, "us/1", "secret-owner")
	expectProblem(t, root.putWith(t, "us/1", token(lease, 1), `If-Match: "7"`), api.CodeVersionMismatch)
	h.record(t)
	list := as[api.Rejections](t, root.get(t, "/v1/rejections"), http.StatusOK)
	there := eu.get(t, fmt.Sprintf("/v1/rejections/%d", list.Rejections[0].ID))
	missing := eu.get(t, "/v1/rejections/999999")
	expectProblem(t, there, api.CodeNotFound)
	expectProblem(t, missing, api.CodeNotFound)
	anonymous := func(got answer) string {
		return strings.NewReplacer(fmt.Sprint(list.Rejections[0].ID), "ID", "999999", "ID").Replace(string(got.body))
	}
	if anonymous(there) != anonymous(missing) {
		t.Errorf("a rejection that exists was answered %s, another one %s", there.body, missing.body)
	}
}
