package gateway

import (
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3filter"

	"github.com/fencegate/fencegate/gateway/ui"
)

// What browsers load is plain to the check of answers.
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

// fileAnswer is how a request for a file was answered.
type fileAnswer struct {
	status int
	header http.Header
	length int64
	body   string
}

// file asks for a file, with headers in pairs.
func (c client) file(t *testing.T, method, path string, headers ...string) fileAnswer {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, c.base+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	response, err := c.http.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return fileAnswer{response.StatusCode, response.Header, response.ContentLength, string(body)}
}

// path is where a file of the dashboard is served.
func path(name string) string {
	if name == ui.Index {
		return "/"
	}
	return "/ui/" + name
}

func TestDashboardFiles(t *testing.T) {
	t.Parallel()
	c := dashboardServer(t)
	files, err := ui.Files()
	if err != nil {
		t.Fatal(err)
	}
	for name, file := range files {
		answer := c.file(t, http.MethodGet, path(name))
		if answer.status != http.StatusOK || answer.body != string(file.Content) {
			t.Errorf("%s: %d, %d bytes", name, answer.status, len(answer.body))
		}
		for header, want := range map[string]string{
			"Content-Type": file.ContentType, "Etag": file.ETag, "Cache-Control": "no-cache", "X-Content-Type-Options": "nosniff",
			"Referrer-Policy": "no-referrer", "Content-Security-Policy": dashboardPolicy,
		} {
			if got := answer.header.Get(header); got != want {
				t.Errorf("%s: %s is %q, not %q", name, header, got, want)
			}
		}
		if answer := c.file(t, http.MethodHead, path(name)); answer.status != http.StatusOK || answer.body != "" || answer.length != int64(len(file.Content)) {
			t.Errorf("HEAD %s: %d, Content-Length %d", name, answer.status, answer.length)
		}
		if answer := c.file(t, http.MethodGet, path(name), "If-None-Match", `"other", W/`+file.ETag); answer.status != http.StatusNotModified || answer.body != "" {
			t.Errorf("%s, which the client has: %d %q", name, answer.status, answer.body)
		}
	}
}

// TestDashboardPolicy shows that nothing can be loaded from elsewhere, run inline or framed.
func TestDashboardPolicy(t *testing.T) {
	t.Parallel()
	for directive, want := range map[string]string{
		"default-src": "'none'", "script-src": "'self'", "style-src": "'self'", "img-src": "'self'", "connect-src": "'self'",
		"frame-ancestors": "'none'", "base-uri": "'none'", "form-action": "'none'", "require-trusted-types-for": "'script'", "trusted-types": "'none'",
	} {
		if !slices.Contains(strings.Split(dashboardPolicy, "; "), directive+" "+want) {
			t.Errorf("the policy has no %s %s: %s", directive, want, dashboardPolicy)
		}
	}
}

func TestDashboardHasNoOtherFiles(t *testing.T) {
	t.Parallel()
	c := dashboardServer(t)
	for _, target := range []string{"/ui/", "/ui/index.html", "/ui/missing.js", "/ui/ui.go", "/ui/package.json", "/ui/../routes.go", "/ui/%2e%2e/routes.go", "/ui/pages", "/ui//app.js", "/index.html", "/ui"} {
		if answer := c.file(t, http.MethodGet, target); answer.status != http.StatusNotFound || !strings.Contains(answer.body, `"code":"not_found"`) {
			t.Errorf("%s: %d %.200s", target, answer.status, answer.body)
		}
	}
	if answer := c.file(t, http.MethodPost, "/"); answer.status != http.StatusMethodNotAllowed || answer.header.Get("Allow") != "GET, HEAD" {
		t.Errorf("POST /: %d, Allow %q", answer.status, answer.header.Get("Allow"))
	}
}

var loaded = regexp.MustCompile(`(?:src|href)="(ui/[^"]+)"`)

// TestDashboardLoadsWhatThereIs follows what the page names.
func TestDashboardLoadsWhatThereIs(t *testing.T) {
	t.Parallel()
	c := dashboardServer(t)
	names := loaded.FindAllStringSubmatch(c.file(t, http.MethodGet, "/").body, -1)
	if len(names) < 3 {
		t.Fatalf("the page loads only %q", names)
	}
	for _, name := range names {
		if answer := c.file(t, http.MethodGet, "/"+name[1]); answer.status != http.StatusOK {
			t.Errorf("%s: %d", name[1], answer.status)
		}
	}
}
