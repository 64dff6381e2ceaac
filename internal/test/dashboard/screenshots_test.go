//go:build unix

package dashboard

import (
	"encoding/json"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp/kb"

	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/lockclient/api"
)

// TestSlow_Screenshots stores pictures of every page on every device, under load at two gateways.
func TestSlow_Screenshots(t *testing.T) {
	if os.Getenv(artifactsEnv) == "" {
		t.Skip(artifactsEnv + " names no directory for the pictures")
	}
	t.Parallel()
	f := newFixture(t)
	other := startGatewayOn(t, f.database)
	f.addWaiters(t)
	f.sleepy(t)
	load(t, f.gateway, other)
	await.True(t, "the overview has 8 points with writes", func() bool { return f.points(t) >= 8 })
	pages := append([]shownPage{
		{"rejections-of-one", "#/rejections?owner_id=importer-7f3a&range=15m", "Rejections", []string{"importer-7f3a"}},
		{"lock-free", lockHash("archive/2025"), "archive/2025", []string{"free"}},
	}, shownPages...)
	for _, as := range []device{desktop, desktopDark, phone, phoneDark} {
		p := openTab(t, f.gateway, as)
		for _, page := range pages {
			if page.name == "rejections" {
				page.hash += "?range=15m"
			}
			if page.name == "overview" || page.name == "rejections" {
				page.shows = []string{"Zombie"} // the load's rejections are newer than the fixture's
			}
			p.show(page)
			if page.name != "api" {
				p.waitText("#live", "Live")
			}
			p.waitLoaded()
			switch {
			case page.name == "overview":
				p.wait("the charts are drawn", `document.querySelectorAll("main svg path").length > 3`)
			case strings.HasPrefix(page.name, "rejections"):
				p.wait("the marks are drawn", `document.querySelector("main svg .mark")?.checkVisibility()`)
			case page.name == "lock":
				p.wait("the wait-for graph is drawn", `document.querySelector(".graph .node")?.checkVisibility()`)
			}
			p.picture(page.name+"-"+as.name, pictureHeightMax)
		}
		p.open("#/rejections?range=15m&owner_id=worker-sleepy")
		p.openDrawerOf("worker-sleepy")
		p.waitText("dialog.drawer", "no renewal for")
		p.picture("drawer-"+as.name, 0)
		p.open(lockHash(fixtureLock))
		p.openValue("Grace")
		p.picture("value-"+as.name, 0)
		p.press(kb.Escape)
		p.openBreak(fixtureLock, "importer-91bc")
		p.write("dialog textarea", "host a7 was replaced, see the incident of today")
		p.picture("break-"+as.name, 0)
	}
}

// addWaiters adds waiters and a free lock to the fixture.
func (f *fixture) addWaiters(t *testing.T) {
	t.Helper()
	f.queue(t, fixtureLock, "importer-e001")
	f.queue(t, fixtureLock, "importer-e002")
	f.queue(t, "index/a", "importer-91bc") // the holder of fixtureLock waits itself
	f.queue(t, "index/a", "compactor-1")
	f.wait(t, fixtureElection, "scheduler-b")
	f.wait(t, fixtureElection, "scheduler-c")
	lease := f.hold(t, "archive/2025", "archiver")
	f.put(t, lease, "index", "{}", 1)
	f.release(t, lease)
}

// sleepy makes a zombie whose lease expires while another waits for the lock, who then writes.
func (f *fixture) sleepy(t *testing.T) {
	t.Helper()
	const lock = "imports/invoices/7"
	stale, err := f.Acquire(t.Context(), lock, api.AcquireRequest{OwnerID: "worker-sleepy", TTLMS: new(int64(1000))})
	check(t, err)
	f.put(t, stale, "total", "12", 1)
	_, err = f.Renew(t.Context(), lock, api.RenewRequest{
		OwnerID: stale.OwnerID, LeaseID: stale.LeaseID, FencingToken: stale.FencingToken,
	})
	check(t, err)
	next, err := f.Acquire(t.Context(), lock, api.AcquireRequest{OwnerID: "worker-next", TTLMS: new(longTTL), WaitMS: longWait})
	check(t, err)
	f.put(t, next, "total", "13", 1)
	for range 3 {
		f.putStale(t, stale, "total")
	}
}

// points returns the number of points of the overview's charts with accepted writes.
func (g *gateway) points(t *testing.T) int {
	t.Helper()
	answer, err := http.Get(g.url + "/v1/overview?range_ms=60000")
	check(t, err)
	defer answer.Body.Close()
	var overview api.Overview
	check(t, json.NewDecoder(answer.Body).Decode(&overview))
	return len(slices.DeleteFunc(overview.Points, func(point api.OverviewPoint) bool {
		return point.OverviewRates == nil || point.AcceptedPerS == 0
	}))
}
