//go:build unix

package dashboard

import "testing"

// TestPagesResumeAfterGatewayRestart kills the gateway of the pages, lets another gateway reject writes meanwhile, and
// restarts the first. The pages show the lost connection, and then what they missed, without being reloaded.
func TestPagesResumeAfterGatewayRestart(t *testing.T) {
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

	g.kill()
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
	for i, p := range tabs {
		p.waitText("#live", "Live")
		p.wait("the banner shows no error", `document.querySelector("#banner").innerText === "" ||
			document.querySelector("#banner").classList.contains("good")`)
		p.waitText("main", pages[i].shows)
		checks[i]()
	}
}

// TestTryNowReconnects checks that the banner's button reconnects at once.
func TestTryNowReconnects(t *testing.T) {
	g := startGateway(t)
	p := openTab(t, g, desktop)
	p.allow("net::ERR_")
	p.open("#/rejections")
	p.waitText("#live", "Live")
	g.kill()
	p.waitText("#banner", "Connection lost")
	g.start(t)
	p.wait("the button is shown, or the page is connected", `document.querySelector("#banner button") ||
		document.querySelector("#live").dataset.state === "live"`)
	eval[bool](p, `Boolean(document.querySelector("#banner button")?.click())`)
	p.waitText("#live", "Live")
}
