package gateway

import (
	"net/http"
	"strconv"

	"github.com/gorilla/mux"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/gateway/ui"
)

// dashboardPolicy lets the dashboard load its own modules and styles and call this gateway, and nothing else. Trusted types are none: a name that was
// parsed as HTML, if ever code did that, is an error and not an element.
const dashboardPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"frame-ancestors 'none'; base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// dashboard answers the page.
func (g *Gateway) dashboard(w http.ResponseWriter, r *http.Request) error {
	return answerFile(w, r, ui.Index)
}

// dashboardFile answers what the page loads.
func (g *Gateway) dashboardFile(w http.ResponseWriter, r *http.Request) error {
	name := mux.Vars(r)["file"]
	if name == ui.Index {
		name = "" // its links are relative to /
	}
	return answerFile(w, r, name)
}

func answerFile(w http.ResponseWriter, r *http.Request, name string) error {
	files, err := ui.Files()
	if err != nil {
		return err
	}
	file, ok := files[name]
	if !ok {
		return problem(http.StatusNotFound, api.CodeNotFound, "The dashboard has no such file; it is at /.")
	}
	header := w.Header()
	header.Set("ETag", file.ETag)
	// Asked for again each time, mostly to hear 304: modules of two versions must not meet in one page after an upgrade.
	header.Set("Cache-Control", "no-cache")
	header.Set("Content-Security-Policy", dashboardPolicy)
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Referrer-Policy", "no-referrer")
	if matchesNone(r.Header, file.ETag) {
		w.WriteHeader(http.StatusNotModified)
		return nil
	}
	header.Set("Content-Type", file.ContentType)
	header.Set("Content-Length", strconv.Itoa(len(file.Content)))
	_, _ = w.Write(file.Content)
	return nil
}
