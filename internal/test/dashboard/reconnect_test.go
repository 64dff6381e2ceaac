//go:build unix

package dashboard

import "testing"

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
