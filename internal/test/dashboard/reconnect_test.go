//go:build unix

package dashboard

import (
	"testing"

	"github.com/fencegate/fencegate/internal/test/testenv/postgres"
)

// TestPagesResumeAfterGatewayRestart kills the gateway of the pages, lets another gateway reject writes meanwhile, and
// restarts the first. The pages show the lost connection, and then what they missed, without being reloaded. The
// banner's button reconnects at once.
func TestPagesResumeAfterGatewayRestart(t *testing.T) {
	t.Parallel()
	g := startGateway(t)
	other := startGatewayOn(t, g.database)
	stale, _ := g.zombie(t, "jobs/42", "before", "sleepy-worker", "next-worker")
	pages := []struct{ hash, shows string }{
		{"#/rejections", "late/row"},
		{"#/", "jobs/away"},
		{lockHash("jobs/42"), "late/row"},
		{"#/locks", "meanwhile"},
	}
	tabs := make([]*tab, len(pages))
	checks := make([]func(), len(pages))
	for i, page := range pages {
		p := openTab(t, g, desktop)
		p.allow("net::ERR_")
		p.open(page.hash)
		p.waitText("main", "jobs/42")
		p.waitText("#live", "Live")
		if text := p.text("#banner"); text != "" {
			t.Errorf("%s: the banner shows %q before the gateway is killed, want nothing", page.hash, text)
		}
		tabs[i], checks[i] = p, p.checkNotReloaded()
	}

	g.process.Kill()
	for i, p := range tabs {
		p.waitText("#banner", "Connection lost at ")
		p.waitText("#live", "Not connected")
		if p.text("main table") == "" {
			t.Errorf("%s: the content disappeared when the connection was lost", pages[i].hash)
		}
	}
	other.zombie(t, "jobs/away", "row", "away-worker", "meanwhile")
	other.putStale(t, stale, "late/row")

	g.start(t)
	eval[bool](tabs[0], `Boolean(document.querySelector("#banner button")?.click())`)
	for i, p := range tabs {
		p.waitText("#live", "Live")
		p.wait("the banner shows no error", `document.querySelector("#banner").innerText === "" ||
			document.querySelector("#banner").classList.contains("good")`)
		p.waitText("main", pages[i].shows)
		checks[i]()
	}
}

// TestPagesWithoutDatabase kills PostgreSQL under a gateway that lives: pages say that they are not current, the overview
// has the error of the driver once, and all are live again when the database is back.
func TestPagesWithoutDatabase(t *testing.T) {
	t.Parallel()
	cluster := postgres.NewCluster(t)
	g := startGatewayOn(t, cluster.URL())
	g.hold(t, "jobs/42", "an-owner")
	hashes := []string{"#/", "#/rejections", "#/locks", lockHash("jobs/42")}
	tabs := make([]*tab, len(hashes))
	for i, hash := range hashes {
		tabs[i] = openTab(t, g, desktop)
		tabs[i].allow("503")
		tabs[i].open(hash)
		tabs[i].waitText("#live", "Live")
		tabs[i].waitLoaded()
	}
	cluster.Kill()
	for _, p := range tabs {
		p.waitText("#live", "Not current")
		p.waitText("#banner", "database")
	}
	eval[bool](tabs[2], `Boolean(performance.clearResourceTimings(), true)`)
	tabs[2].wait("the list was read again and again", `performance.getEntriesByType("resource")
		.filter((entry) => entry.name.includes("/v1/locks")).length > 1`)
	if !eval[bool](tabs[2], `document.querySelector("main tbody tr").checkVisibility()`) {
		t.Error("the rows of the list have disappeared")
	}
	tabs[0].waitText("main", "no lock is granted")
	tabs[0].wait("the driver's error is shown once", `document.body.innerText.split("failed to connect").length === 2`)
	cluster.Restart()
	for _, p := range tabs {
		p.waitText("#live", "Live")
	}
}
