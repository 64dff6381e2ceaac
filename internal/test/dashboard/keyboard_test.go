//go:build unix

package dashboard

import (
	"testing"

	"github.com/chromedp/chromedp/kb"
)

// focused is a JavaScript expression for the element with the focus.
const focused = "document.activeElement"

// tabTo presses Tab until an expression about the focus is true. The focus must be visible.
func (p *tab) tabTo(what, expression string) {
	p.t.Helper()
	for range 60 {
		if !eval[bool](p, "Boolean("+expression+")") {
			p.press(kb.Tab)
			continue
		}
		if !eval[bool](p, `((style) => style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 1)(
			getComputedStyle(document.activeElement))`) {
			p.t.Errorf("the focus is not visible on %s", eval[string](p, focused+".outerHTML.slice(0, 200)"))
		}
		return
	}
	p.t.Fatalf("60 Tabs do not reach %s", what)
}

// TestKeyboardNavigates checks that the keyboard can skip the navigation, change the page, sort a table, and choose a
// theme, which is kept when the page is loaded again.
func TestKeyboardNavigates(t *testing.T) {
	t.Parallel()
	g := startGateway(t)
	g.hold(t, "jobs/1", "an-owner")
	g.hold(t, "jobs/2", "an-owner")
	p := openTab(t, g, desktop)
	p.open("#/policies")
	p.waitText("main h1", "Policies")
	p.press(kb.Tab)
	p.wait("the skip link has the focus", focused+`.innerText === "Skip to the content"`)
	p.wait("the skip link is visible", focused+`.getBoundingClientRect().top >= 0`)
	p.press(kb.Enter)
	p.wait("the content has the focus", focused+`.closest("main") !== null`)
	p.waitText("main h1", "Policies") // the address is the same

	p.tabTo("Locks in the navigation", focused+`.innerText === "Locks"`)
	p.press(kb.Enter)
	p.waitText("main h1", "Locks")
	p.wait("the navigation marks Locks", `document.querySelector("nav [aria-current=page]").innerText === "Locks"`)
	p.wait("the content has the focus", focused+`.closest("main") !== null`)
	p.waitText("main table", "jobs/2")

	p.tabTo("the button that sorts by lock", focused+`.matches("th button") && `+focused+`.innerText.startsWith("Lock")`)
	p.press(kb.Enter)
	p.wait("aria-sort is descending", `document.querySelector("th[aria-sort=descending]")?.innerText.startsWith("Lock")`)
	p.wait("the order is descending", `document.querySelector("main tbody tr").innerText.includes("jobs/2")`)
	p.wait("the button has kept the focus", focused+`.matches("th button")`)
	p.wait("the order is in the address", `location.hash.includes("order=desc")`)

	p.tabTo("the theme button", focused+`.id === "theme"`)
	for range 4 {
		if eval[string](p, "document.documentElement.dataset.theme") == "dark" {
			break
		}
		p.press(kb.Enter)
	}
	p.checkColours(true)
	p.open("?again#/policies")
	p.waitText("main h1", "Policies")
	p.checkColours(true)
}

// testKeyboardBreaksALock checks that the keyboard can cancel and confirm a break.
func testKeyboardBreaksALock(t *testing.T, g *gateway) {
	g.hold(t, "jobs/keyboard", "an-owner")
	p := openTab(t, g, desktop)
	p.open(lockHash("jobs/keyboard"))
	p.waitText("main", "an-owner")
	// Another part of the page may show the owner first.
	p.wait("the break button is enabled", `document.querySelector("button.danger")?.disabled === false`)
	p.tabTo("the break button", focused+`.matches("button.danger")`)
	p.press(kb.Enter)
	p.wait("the reason has the focus", focused+`.matches("dialog textarea")`)
	p.press(kb.Escape)
	p.wait("Escape has closed the dialog", `!document.querySelector("dialog").open`)
	p.wait("the break button has the focus again", focused+`.matches("button.danger")`)

	p.press(kb.Enter)
	p.wait("the reason has the focus again", focused+`.matches("dialog textarea")`)
	p.press("the host was replaced")
	p.tabTo("the confirm button", focused+`.matches("dialog button[type=submit]")`)
	p.press(kb.Enter)
	p.waitText("dialog", "Broken")
	lock, err := g.Lock(t.Context(), "jobs/keyboard")
	check(t, err)
	if lock.State != "free" {
		t.Errorf("the lock is %s after the break, want free", lock.State)
	}
}
