//go:build unix

package dashboard

import (
	"encoding/json"
	"net/http"
	"os"
	"strings"
	"testing"
)

// TestScreenshots keeps pictures of every page, as three visitors see them, while workers write at two gateways and zombies are shut out.
func TestScreenshots(t *testing.T) {
	if os.Getenv(artifactsEnv) == "" {
		t.Skip(artifactsEnv + " names no directory for the pictures")
	}
	w := newWorld(t)
	other := startGatewayOn(t, w.database)
	w.stage(t)
	load(t, w.gateway, other)
	eventually(t, "the overview has what it draws", func() bool { return w.points(t) >= 12 })
	pages := append([]shownPage{
		{"rejections-of-one", "#/rejections?owner_id=importer-1&range=15m", "Rejections", []string{"importer-1"}},
		{"lock-free", lockHash("archive/2025"), "archive/2025", []string{"free"}},
	}, shownPages...)
	for _, as := range []look{desktop, desktopDark, phone} {
		p := openTab(t, w.gateway, as)
		for _, page := range pages {
			if page.name == "overview" || page.name == "rejections" {
				page.hash += "?range=" + map[string]string{"overview": "1m", "rejections": "15m"}[page.name]
				page.shows = []string{"token_stale"} // they show the newest, which are many by now
			}
			p.see(page)
			p.waitText("#live", "Live")
			if page.name == "overview" {
				p.wait("the charts are drawn", `document.querySelectorAll("main svg path").length > 3`)
			}
			p.wait("all is loaded", `![...document.querySelectorAll("main .loading")].some((node) => node.checkVisibility())`)
			if strings.HasPrefix(page.name, "rejections") {
				p.wait("the marks are drawn", `document.querySelector("main svg .mark")?.checkVisibility()`)
			}
			if page.name == "lock" {
				p.wait("the graph is drawn", `document.querySelector(".graph .node")?.checkVisibility()`)
			}
			p.picture(page.name + "-" + as.name)
		}
		p.openBreak(worldLock, "importer-91bc")
		p.write("dialog textarea", "host a7 was replaced, see the incident of today")
		p.screen("break-" + as.name)
	}
}

// stage adds to the world what pictures should have in them.
func (w *world) stage(t *testing.T) {
	t.Helper()
	for _, owner := range []string{"importer-e001", "importer-e002"} {
		w.queue(t, worldLock, owner)
	}
	w.queue(t, "index/a", "importer-91bc") // who holds worldLock waits itself
	w.queue(t, "index/a", "compactor-1")
	for _, candidate := range []string{"scheduler-b", "scheduler-c"} {
		w.wait(t, worldElection, candidate)
	}
	lease := w.hold(t, "archive/2025", "archiver")
	w.put(t, lease, "index", "{}", 1)
	check(t, w.Release(t.Context(), "archive/2025", releaseOf(lease)))
}

// points is how many points of the overview's charts have something in them.
func (g *gateway) points(t *testing.T) int {
	t.Helper()
	answer, err := http.Get(g.url + "/v1/overview?range_ms=60000")
	check(t, err)
	defer answer.Body.Close()
	var overview struct {
		Points []struct {
			Accepted float64 `json:"accepted_per_s"`
		} `json:"points"`
	}
	check(t, json.NewDecoder(answer.Body).Decode(&overview))
	n := 0
	for _, point := range overview.Points {
		if point.Accepted > 0 {
			n++
		}
	}
	return n
}
