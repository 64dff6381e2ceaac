package gateway

import (
	"bytes"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3filter"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/gateway/ui"
)

// The check against openapi.yaml does not decode the files of the dashboard.
func init() {
	for _, kind := range []string{"text/html", "text/javascript", "text/css", "image/svg+xml"} {
		openapi3filter.RegisterBodyDecoder(kind, openapi3filter.PlainBodyDecoder)
	}
}

// dashboardServer serves the routes that need no database.
func dashboardServer(t *testing.T) client {
	t.Helper()
	g, err := New(Config{}, nil, nil, NewMetrics("test"))
	if err != nil {
		t.Fatal(err)
	}
	return serve(t, conforming(t, g))
}

// filePath is the path of a file of the dashboard.
func filePath(name string) string {
	if name == ui.Index {
		return "/"
	}
	return "/ui/" + name
}

// Every file is served with its type, its ETag and the headers that protect browsers.
func TestDashboardFiles(t *testing.T) {
	t.Parallel()
	c := dashboardServer(t)
	files, err := ui.Files()
	if err != nil {
		t.Fatal(err)
	}
	for name, file := range files {
		path := filePath(name)
		answer := c.get(t, path)
		if answer.status != http.StatusOK || !bytes.Equal(answer.body, file.Content) {
			t.Errorf("%s: answered %d with %d bytes, want 200 with %d", name, answer.status, len(answer.body), len(file.Content))
		}
		for header, want := range map[string]string{
			"Content-Type": file.ContentType, "Etag": file.ETag, "Cache-Control": "no-cache",
			"X-Content-Type-Options": "nosniff",
			"Referrer-Policy":        "no-referrer", "Content-Security-Policy": dashboardPolicy,
		} {
			if got := answer.header.Get(header); got != want {
				t.Errorf("%s: %s is %q, want %q", name, header, got, want)
			}
		}
		head := c.send(t, http.MethodHead, path, "")
		length := head.header.Get("Content-Length")
		if head.status != http.StatusOK || len(head.body) > 0 || length != strconv.Itoa(len(file.Content)) {
			t.Errorf("HEAD %s: answered %d with Content-Length %s, want 200 with %d", name, head.status, length,
				len(file.Content))
		}
		same := c.get(t, path, `If-None-Match: "other", W/`+file.ETag)
		if same.status != http.StatusNotModified || len(same.body) > 0 {
			t.Errorf("%s with its ETag: answered %d %q, want 304", name, same.status, same.body)
		}
	}
}

// The policy forbids loading from elsewhere, inline scripts and frames.
func TestDashboardPolicy(t *testing.T) {
	t.Parallel()
	for directive, want := range map[string]string{
		"default-src": "'none'", "script-src": "'self'", "style-src": "'self'", "img-src": "'self'", "connect-src": "'self'",
		"frame-ancestors": "'none'", "base-uri": "'none'", "form-action": "'none'", "require-trusted-types-for": "'script'",
		"trusted-types": "'none'",
	} {
		if !slices.Contains(strings.Split(dashboardPolicy, "; "), directive+" "+want) {
			t.Errorf("the policy is %s, want %s %s in it", dashboardPolicy, directive, want)
		}
	}
}

func TestDashboardHasNoOtherFiles(t *testing.T) {
	t.Parallel()
	c := dashboardServer(t)
	for _, target := range []string{
		"/ui/", "/ui/index.html", "/ui/missing.js", "/ui/ui.go", "/ui/package.json", "/ui/../routes.go",
		"/ui/%2e%2e/routes.go", "/ui/pages", "/ui//app.js", "/index.html", "/ui",
	} {
		expectProblem(t, c.get(t, target), api.CodeNotFound)
	}
	got := c.post(t, "/", "")
	if got.status != http.StatusMethodNotAllowed || got.header.Get("Allow") != "GET, HEAD" {
		t.Errorf("POST /: answered %d with Allow %q, want 405 with GET, HEAD", got.status, got.header.Get("Allow"))
	}
}

var loaded = regexp.MustCompile(`(?:src|href)="(ui/[^"]+)"`)

// Every file that the page loads is served.
func TestDashboardLoadsFilesThatExist(t *testing.T) {
	t.Parallel()
	c := dashboardServer(t)
	names := loaded.FindAllSubmatch(c.get(t, "/").body, -1)
	if len(names) < 3 {
		t.Fatalf("the page loads %q, want at least 3 files", names)
	}
	for _, name := range names {
		if answer := c.get(t, "/"+string(name[1])); answer.status != http.StatusOK {
			t.Errorf("%s: answered %d, want 200", name[1], answer.status)
		}
	}
}
