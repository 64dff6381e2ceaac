package gateway

import (
	"maps"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/fencegate/fencegate/lockclient/api"
)

// The routes are the paths and methods of openapi.yaml.
func TestEveryRouteIsDescribed(t *testing.T) {
	t.Parallel()
	described().CheckRoutes(t, withoutDatabase(t, Config{}).routes())
}

// Requests for the frequent paths have the same answer and the same metrics with and without the router, whatever method,
// headers, query and body they have: names, origins, limits and other refusals are judged alike.
func TestFrequentPathsAnswerLikeTheRouter(t *testing.T) {
	t.Parallel()
	paths := []string{
		"/v1/locks/a/acquire", "/v1/locks/a/b/renew", "/v1/locks/a%2Fb/release", "/v1/locks/a%2Frelease", "/v1/locks//acquire",
		"/v1/locks/a//release", "/v1/locks/a//b/renew", "/v1/locks/a/acquire/",
		"//v1/locks/a/acquire", "/v1//locks/a/acquire", "/v1/locks/acquire", "/v1/locks/a/acquire/renew",
		"/v1/locks/%00/acquire", "/v1/locks/%FF/acquire", "/v1/locks/a%0A/acquire",
		"/v1/locks/a;b/acquire", "/v1/locks/a/acquire;b", "/v1/locks/../acquire", "/v1/locks/./renew", "/v1/locks/a/Acquire",
		"/v1/locks/a/acquire?wait_ms=1", "/v1/locks/a/acquire?", "/v1/locks/" + strings.Repeat("n", 600) + "/acquire",
		"/v1/locks/a/break", "/v1/locks/a/watch", "/v1/resources/a/records/k", "/v1/resources/a/records//k",
		"/v1/resources/a%2Frecords%2Fk", "/v1/resources/a/records/k/", "/v1/resources//records/k", "/v1/resources/a/records/k?x",
	}
	headers := []http.Header{
		{},
		{"Content-Type": {"application/json"}},
		{"Content-Type": {"text/plain"}, "Fencing-Token": {"x"}},
		{"Content-Type": {"application/json"}, "Sec-Fetch-Site": {"cross-site"}},
		{"Content-Type": {"application/json"}, "Origin": {"http://elsewhere"}},
		{"Content-Type": {"application/json"}, "Fencing-Token": {"1"}, "Content-Range": {"bytes 0-1/2"}},
	}
	bodies := []string{"", "{", `{"owner_id":""}`, `{"unknown":1}`}
	quick, router := withoutDatabase(t, Config{}), withoutDatabase(t, Config{}).routes()
	send := func(handler http.Handler, method, path, body string, header http.Header) *httptest.ResponseRecorder {
		r := httptest.NewRequest(method, "http://gateway"+path, strings.NewReader(body))
		maps.Copy(r.Header, header)
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		return w
	}
	for _, method := range []string{"POST", "PUT", "DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "post", "LOCK", "X"} {
		for _, path := range paths {
			for i, header := range headers {
				body := bodies[(len(path)+i)%len(bodies)]
				got := send(quick, method, path, body, header)
				want := send(router, method, path, body, header)
				if got.Code != want.Code || got.Body.String() != want.Body.String() ||
					!reflect.DeepEqual(got.Header(), want.Header()) {
					t.Errorf("%s %s %s with %v is answered\n%d %v %s\nand by the router\n%d %v %s", method, path, body, header,
						got.Code, got.Header(), got.Body, want.Code, want.Header(), want.Body)
				}
			}
		}
	}
	counts := func(handler http.Handler) []string {
		lines := strings.Split(send(handler, "GET", "/metrics", "", nil).Body.String(), "\n")
		return slices.DeleteFunc(lines, func(line string) bool {
			return !strings.HasPrefix(line, "fencegate_http_request_duration_seconds_count")
		})
	}
	got, want := counts(quick), counts(router)
	if len(got) < 10 || !slices.Equal(got, want) {
		t.Errorf("the requests are counted as\n%s\nand by the router as\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// goodNames has names as they are written in a URL, and the decoded names.
var goodNames = map[string]string{
	"a%2Fb%2fc/d":                       "a/b/c/d",
	"%61":                               "a",
	"käse/名前/🦀":                         "käse/名前/🦀",
	"e%CC%81":                           "e\u0301", // not normalized: another name than é
	"a%20b":                             "a b",
	"a+b":                               "a+b",
	"100%25":                            "100%",
	"a%252Fb":                           "a%2Fb", // decoded once
	"what%3Fx=1":                        "what?x=1",
	"a;b=c,d&e":                         "a;b=c,d&e",
	"...":                               "...",
	".hidden/..a/b..":                   ".hidden/..a/b..",
	"%22%5C%3C%3E":                      `"\<>`,
	"acquired/Renew/records2":           "acquired/Renew/records2",
	"%F4%8F%BF%BF":                      "\U0010ffff",
	strings.Repeat("x", 512):            strings.Repeat("x", 512),
	strings.Repeat("%F4%8F%BF%BF", 128): strings.Repeat("\U0010ffff", 128),
}

// badNames has names as they are written in a URL, by a part of the detail of the refusal.
var badNames = map[string][]string{
	"empty": {"", "/a", "a/", "a//b", "a%2F%2Fb", "%2F", "a%2F"},
	`"."`:   {".", "a/./b"},
	`".."`:  {"..", "%2e%2E", "a/../b", "a%2F.."},

	"control character":           {"%00", "a%7F", "a%C2%85", "%09", "a%0D%0AX-Evil:%201"},
	"control character at byte 1": {"a%0Ab"},

	"UTF-8":                               {"%FF", "a%C3", "%ED%A0%80", "%C0%AF"},
	"513 bytes; at most 512 are allowed":  {strings.Repeat("x", 513), "x" + strings.Repeat("%C3%A9", 256)},
	"8001 bytes; at most 512 are allowed": {strings.Repeat("a/", 4000) + "a"},

	`"acquire", which is reserved`: {"acquire", "a/acquire", "%61cquire"},
	`"fence", which is reserved`:   {"fence", "fence/a", "a%2Ffence"},
	`"records", which is reserved`: {"records", "a/records/b"},
	`"renew", which is reserved`:   {"renew"},
	`"break", which is reserved`:   {"break"},
	`"watch", which is reserved`:   {"watch"},
}

// A name is decoded once and not changed, wherever it is: in paths, bodies, records, fences, policies and lists.
func TestGoodNames(t *testing.T) {
	h := newHarness(t, Config{})
	request := encode(api.AcquireRequest{OwnerID: "w", RequestID: new("r"), TTLMS: &longTTL})
	var names []string
	sequence := int64(0)
	for raw, name := range goodNames {
		sequence++
		lease := as[api.Lease](t, h.post(t, "/v1/locks/"+raw+"/acquire", request), http.StatusOK)
		lock := as[api.Lock](t, h.get(t, "/v1/locks/"+raw), http.StatusOK)
		put := h.send(t, http.MethodPut, "/v1/resources/"+raw+"/records/"+raw, name, token(lease, sequence))
		result := as[api.WriteResult](t, put, put.status)
		written := string(h.get(t, recordPath(name, name)).body)
		sequence++
		change := as[api.TransactionResult](t, h.transact(t, api.TransactionRequest{
			Fences: []api.WriteToken{writeToken(lease, sequence)}, Ops: []api.Op{putOp(lease, name, "1")},
		}), http.StatusOK).Results[0]
		got := []string{
			lease.Lock, lock.Lock, result.Resource, result.Key, written,
			h.fence(t, raw).Resource, change.Resource, change.Key, h.setPolicy(t, raw, "{}").Prefix,
		}
		if slices.ContainsFunc(got, func(shown string) bool { return shown != name }) {
			t.Errorf("%q is shown as %q, want %q", raw, got, name)
		}
		names = append(names, name)
	}
	slices.Sort(names)
	names = slices.Compact(names)
	var listed, prefixes []string
	for _, lock := range as[api.Locks](t, h.get(t, "/v1/locks"), http.StatusOK).Locks {
		listed = append(listed, lock.Lock)
	}
	for _, policy := range as[api.Policies](t, h.get(t, "/v1/policies"), http.StatusOK).Policies {
		prefixes = append(prefixes, policy.Prefix)
	}
	if !slices.Equal(listed, names) || !slices.Equal(prefixes, names) {
		t.Errorf("the locks and policies are\n%q and\n%q, want\n%q", listed, prefixes, names)
	}
}

// An invalid name is refused wherever it is. The detail names the field and the reason.
func TestBadNames(t *testing.T) {
	h := newHarness(t, Config{})
	lease := h.acquire(t, "job", "worker")
	h.unchanged(t, func() {
		for why, raws := range badNames {
			for _, raw := range raws {
				h.expectBadName(t, lease, raw, why)
			}
		}
	})
}

// expectBadName checks that every kind of path refuses a name.
func (h *harness) expectBadName(t *testing.T, lease api.Lease, raw, why string) {
	t.Helper()
	for _, at := range []struct{ field, method, path, body string }{
		{"lock", http.MethodPost, "/v1/locks/" + raw + "/acquire", `{"owner_id":"w"}`},
		{"lock", http.MethodPost, "/v1/locks/" + raw + "/break", `{"reason":"r"}`},
		{"lock", http.MethodPost, "/v1/locks/" + raw + "/renew", refOf(lease)},
		{"lock", http.MethodPost, "/v1/locks/" + raw + "/release", refOf(lease)},
		{"lock", http.MethodGet, "/v1/locks/" + raw + "/watch", ""},
		{"resource", http.MethodGet, "/v1/resources/" + raw + "/fence", ""},
		{"resource", http.MethodDelete, "/v1/resources/" + raw + "/records/k", ""},
		{"resource", http.MethodPut, "/v1/resources/" + raw + "/records/k", "x"},
		{"resource", http.MethodGet, "/v1/resources/" + raw + "/records?limit=1", ""},
		{"key", http.MethodPut, "/v1/resources/job/records/" + raw, "x"},
		{"prefix", http.MethodPut, "/v1/policies/" + raw, "{}"},
	} {
		if raw == "" && at.field == "prefix" {
			continue // the policy of every name
		}
		got := h.send(t, at.method, at.path, at.body, jsonType, token(lease, 1))
		problem := expectProblem(t, got, api.CodeInvalidName)
		if strings.Contains(raw, "records") && at.field != "lock" {
			why, at.field = "is reserved", "" // "records" separates the names of a path: another may be refused first
		}
		if !strings.HasPrefix(problem.Detail, "The name of the "+at.field) || !strings.Contains(problem.Detail, why) {
			t.Errorf("%s: the detail is %q; it should be of the %s and say %q", got.request, problem.Detail, at.field, why)
		}
	}
}

// Paths are not cleaned, and reserved segments separate names from actions.
func TestNamesAndPaths(t *testing.T) {
	h := newHarness(t, Config{})
	h.acquire(t, "a", "worker")
	for status, paths := range map[int][]string{
		200: {
			"/v1/locks/a", "/v1/locks/%61", "/v1/locks/a?", "/v1/sessions",
			"/v1/resources/a/records", "/v1/resources/a%2Frecords",
		},
		400: {
			"/v1/locks/a/", "/v1/locks/", "/v1/locks//a", "/v1/locks/a/watch/b", "/v1/locks/a%2Fwatch?x",
			"/v1/sessions/", "/v1/sessions/a/b", "/v1/sessions/keepalive",
			"/v1/resources/a/records/", "/v1/resources/a/records/b/fence", "/v1/locks/../locks/a",
			"/v1/locks/b/../a",                // not cleaned: no name is taken for another
			"/v1/locks/a/watch?last_event_id", // refused, so that this is no stream
		},
		404: {
			"/v1/locks/a/b", "/v1/locks/a%252Facquire", // locks that do not exist
			"/v1//locks/a", "//v1/locks/a", "/v1/resources/a", "/V1/locks/a", "/v1/Locks/a",
		},
		405: {
			"/v1/sessions//keepalive", "/v1/locks/a/acquire", "/v1/locks/a%2Facquire",
		},
	} {
		for _, path := range paths {
			if got := h.get(t, path); got.status != status {
				t.Errorf("GET %s: %d, want %d: %s", path, got.status, status, got.body)
			}
		}
	}
}
