package endpoint

import (
	"math/big"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/gorilla/mux"
)

// CutRecord finds the same names as the regular expression of its path.
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
		resource, key, matched := CutRecord(path)
		if matched != wanted || resource != want.Vars["resource"] || key != want.Vars["key"] {
			t.Errorf("%q: CutRecord found %v %q %q, want %v %q", path, matched, resource, key, wanted, want.Vars)
		}
		if matched && (PathVariable(request, "resource") != resource || PathVariable(request, "key") != key) {
			t.Errorf("%q: PathVariable returned other names than CutRecord, %q and %q", path, resource, key)
		}
	})
}

// ParseETag accepts the texts that etag returns, and no others.
func FuzzETag(f *testing.F) {
	for _, text := range []string{
		`"1"`, `"7"`, `"9223372036854775807"`, `"9223372036854775808"`, `"0"`, `"01"`, `"-1"`, `"+1"`, `W/"1"`, `""`, `"`, ``,
		` "1" `, "*", `"1", "2"`, `"1e3"`, "\"1\"\u0085", `"१"`,
	} {
		f.Add(text)
	}
	reference := regexp.MustCompile(`^"([1-9][0-9]*)"$`)
	f.Fuzz(func(t *testing.T, text string) {
		version, ok := ParseETag(text)
		match := reference.FindStringSubmatch(strings.TrimSpace(text))
		want := match != nil
		if want {
			number, _ := new(big.Int).SetString(match[1], 10)
			want = number.IsInt64()
		}
		if ok != want {
			t.Fatalf("%q is an ETag: %v, want %v", text, ok, want)
		}
		if ok && ETag(version) != strings.TrimSpace(text) {
			t.Errorf("%q is the version %d, whose ETag is %s", text, version, ETag(version))
		}
		if ok && !MatchesNone(http.Header{"If-None-Match": {text}}, ETag(version)) {
			t.Errorf("If-None-Match: %s does not match version %d", text, version)
		}
	})
}
