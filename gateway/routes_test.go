package gateway

import (
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/gorilla/mux"

	"github.com/fencegate/fencegate/gateway/endpoint"
	"github.com/fencegate/fencegate/gateway/locks"
)

// The routes are the paths and methods of openapi.yaml.
func TestEveryRouteIsDescribed(t *testing.T) {
	t.Parallel()
	g, err := New(Config{}, nil, nil, NewMetrics("test"))
	if err != nil {
		t.Fatal(err)
	}
	described().CheckRoutes(t, g.routes())
}

// cutRecord finds the same names as the regular expression of its path.
func FuzzRecordRoute(f *testing.F) {
	for _, path := range []string{
		"/v1/resources/a/records/b", "/v1/resources/a/records/records/b", "/v1/resources/a/records/b/records/c",
		"/v1/resources/records/b", "/v1/resources//records/", "/v1/resources/a/records", "/v1/resources/a/fence",
		"/v1/resources/a/b/records/c/d", "/v1/resources/a\n/records/\nb", "/v1/resources/\xff/records/k\x00",
		"/v1/locks/v1/resources/a/records/b", "/v1/resources/a/records//", "/v1/resources/records/records/records/",
		"/v1/resources/./records/..", "v1/resources/a/records/b", "", "/v1/resources/", "/v1/resources/records/",
	} {
		f.Add(path)
	}
	long := mux.NewRouter().SkipClean(true)
	long.Path("/v1/resources/{resource:(?s:.*)}/records/{key:(?s:.*)}").Methods("PUT")
	f.Fuzz(func(t *testing.T, path string) {
		request := &http.Request{Method: http.MethodPut, URL: &url.URL{Path: path}}
		var want mux.RouteMatch
		wanted := long.Match(request, &want)
		resource, key, matched := endpoint.CutRecord(path)
		if matched != wanted || resource != want.Vars["resource"] || key != want.Vars["key"] {
			t.Errorf("%q: cutRecord found %v %q %q, want %v %q", path, matched, resource, key, wanted, want.Vars)
		}
		if matched && (endpoint.PathVariable(request, "resource") != resource || endpoint.PathVariable(request, "key") != key) {
			t.Errorf("%q: pathVariable returned other names than cutRecord, %q and %q", path, resource, key)
		}
	})
}

// cutLeaseOperation finds the same names as the regular expressions of the paths of the operations.
func FuzzLeaseOperationRoute(f *testing.F) {
	for _, path := range []string{
		"/v1/locks/a/acquire", "/v1/locks/a/b/renew", "/v1/locks/acquire", "/v1/locks//release", "/v1/locks/a/acquire/",
		"/v1/locks/a/acquire/release", "/v1/locks/release/acquire", "/v1/locks/a\n/acquire", "/v1/locks/a/acquire\n",
		"/v1/locks/\xff/renew", "/v1/locks/a/break", "/v1/locks/a", "/v1/locks/", "/v1/elections/a/acquire", "",
		"/v1/resources/a/records/acquire", "v1/locks/a/acquire",
	} {
		f.Add(path)
	}
	g, err := New(Config{}, nil, nil, NewMetrics("test"))
	if err != nil {
		f.Fatal(err)
	}
	operations, router := g.locks.LeaseOperations(), g.routes()
	f.Fuzz(func(t *testing.T, path string) {
		request := &http.Request{Method: http.MethodPost, URL: &url.URL{Path: path}}
		lock, operation := endpoint.CutLeaseOperation(path)
		var want mux.RouteMatch
		template := ""
		if router.Match(request, &want); want.Route != nil {
			template, _ = want.Route.GetPathTemplate()
		}
		wanted, below := strings.CutPrefix(template, locks.LockRoute+"/")
		switch _, is := operations[operation]; {
		case is != (below && operations[wanted] != nil):
			t.Errorf("%q: cutLeaseOperation found %q, want the route %q", path, operation, template)
		case is && (operation != wanted || lock != want.Vars["lock"] || endpoint.PathVariable(request, "lock") != lock):
			t.Errorf("%q: cutLeaseOperation found %q of %q, want %q of %q", path, operation, lock, wanted, want.Vars["lock"])
		}
	})
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
	quick, err := New(Config{}, nil, nil, NewMetrics("test"))
	if err != nil {
		t.Fatal(err)
	}
	routed, err := New(Config{}, nil, nil, NewMetrics("test"))
	if err != nil {
		t.Fatal(err)
	}
	router := routed.routes()
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
