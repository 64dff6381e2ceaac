package gateway

import (
	"maps"
	"net/http"
	"net/url"
	"testing"

	"github.com/gorilla/mux"
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

// The fast path to a record finds the same names as the regular expression of its path.
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
		var want, got mux.RouteMatch
		wanted := long.Match(request, &want)
		if matched := onRecord("PUT")(request, &got); matched != wanted || !maps.Equal(got.Vars, want.Vars) {
			t.Errorf("%q: the fast path found %v %q, want %v %q", path, matched, got.Vars, wanted, want.Vars)
		}
		if onRecord("DELETE")(request, &got) {
			t.Errorf("%q: the fast path matched another method", path)
		}
	})
}
