//go:build unix

package dashboard

import (
	"testing"
)

// TestGatewayAway lets the gateway that the page came from die while another one shuts out a zombie, and come back. The page says that it is cut off, and
// since when; and then shows what happened meanwhile.
func TestGatewayAway(t *testing.T) {
	for _, page := range []struct{ name, hash, shows string }{
		{"rejections", "#/rejections", "late/row"},
		{"overview", "#/", "jobs/away"},
		{"lock", lockHash("jobs/42"), "late/row"},
		{"locks", "#/locks", "meanwhile"},
	} {
		t.Run(page.name, func(t *testing.T) {
			g := startGateway(t)
			other := startGatewayOn(t, g.database)
			stale, _ := g.zombie(t, "jobs/42", "before", "sleepy-worker", "next-worker")
			p := openTab(t, g, desktop)
			p.allow("net::ERR_")
			p.open(page.hash)
			p.waitText("main", "jobs/42")
			p.waitText("#live", "Live")
			if text := p.text("#banner"); text != "" {
				t.Errorf("the banner says %q while all is well", text)
			}
			still := p.stays()

			g.kill()
			p.waitText("#banner", "Connection lost at ")
			p.waitText("#live", "Not connected")
			if p.text("main table") == "" {
				t.Error("what was shown is gone")
			}
			other.zombie(t, "jobs/away", "row", "away-worker", "meanwhile")
			other.shutOut(t, stale, "late/row")

			g.start(t)
			p.waitText("#live", "Live")
			p.wait("the banner is good or gone", `document.querySelector("#banner").innerText === "" || document.querySelector("#banner").classList.contains("good")`)
			p.waitText("main", page.shows)
			still()
		})
	}
}

// TestTryNow shows that nobody has to wait for the next attempt.
func TestTryNow(t *testing.T) {
	g := startGateway(t)
	p := openTab(t, g, desktop)
	p.allow("net::ERR_")
	p.open("#/rejections")
	p.waitText("#live", "Live")
	g.kill()
	p.waitText("#banner", "Connection lost")
	g.start(t)
	p.wait("the button is there, or not needed any more", `document.querySelector("#banner button") || document.querySelector("#live").dataset.state === "live"`)
	eval[bool](p, `Boolean(document.querySelector("#banner button")?.click())`)
	p.waitText("#live", "Live")
}
