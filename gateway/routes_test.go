package gateway

import (
	"net/http"
	"net/url"
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
	checkRoutes(t, g.routes())
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
