package gateway

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"strconv"
	"sync"

	"github.com/gorilla/mux"
	"go.yaml.in/yaml/v3"

	"github.com/fencegate/fencegate/gateway/endpoint"
	"github.com/fencegate/fencegate/gateway/ui"
	"github.com/fencegate/fencegate/lockclient/api"
)

// dashboardPolicy lets the dashboard load its own modules and styles and call this gateway, and nothing else. It allows
// no trusted types: parsing a name as HTML, if code ever did that, is an error and makes no element.
const dashboardPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; " +
	"connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'; " +
	"require-trusted-types-for 'script'; trusted-types 'none'"

func (g *Gateway) dashboardRoutes(router *mux.Router) {
	g.Route(router, "/ui/{file"+endpoint.AnyText, endpoint.Methods{"GET": dashboardFile, "HEAD": dashboardFile})
	g.Route(router, "/", endpoint.Methods{"GET": dashboardFile, "HEAD": dashboardFile})
}

// dashboardFiles are the dashboard's files, and openapi.json: openapi.yaml for the page that shows it.
var dashboardFiles = sync.OnceValues(func() (map[string]ui.File, error) {
	files, err := ui.Files()
	if err != nil {
		return nil, err
	}
	var described any
	if err := yaml.Unmarshal(openAPI, &described); err != nil {
		return nil, fmt.Errorf("parse openapi.yaml: %w", err)
	}
	text, err := json.Marshal(described)
	if err != nil {
		return nil, fmt.Errorf("make openapi.json: %w", err)
	}
	files = maps.Clone(files)
	files["openapi.json"] = ui.NewFile("application/json", text)
	return files, nil
})

// dashboardFile answers the page at /, or a file that the page loads.
func dashboardFile(w *endpoint.Answer, r *http.Request) error {
	files, err := dashboardFiles()
	if err != nil {
		return err
	}
	name, loaded := mux.Vars(r)["file"]
	if !loaded {
		name = ui.Index
	}
	file, ok := files[name]
	if !ok || loaded && name == ui.Index { // its links are relative to /
		return endpoint.Problem(http.StatusNotFound, api.CodeNotFound, "The dashboard has no such file; it is at /.")
	}
	header := w.Header()
	header.Set("ETag", file.ETag)
	// Browsers revalidate each time, and mostly get 304: after an upgrade, a page must not mix modules of two versions.
	header.Set("Cache-Control", "no-cache")
	header.Set("Content-Security-Policy", dashboardPolicy)
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Referrer-Policy", "no-referrer")
	if endpoint.MatchesNone(r.Header, file.ETag) {
		w.WriteHeader(http.StatusNotModified)
		return nil
	}
	header.Set("Content-Type", file.ContentType)
	header.Set("Content-Length", strconv.Itoa(len(file.Content)))
	_, _ = w.Write(file.Content)
	return nil
}
