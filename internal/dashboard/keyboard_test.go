//go:build unix

package dashboard

import (
	"testing"

	"github.com/chromedp/chromedp/kb"
)

// focused is a JavaScript expression for what has the focus.
const focused = "document.activeElement"

// tabTo presses Tab until an expression about the focus is true, as somebody without a mouse does.
func (p *tab) tabTo(what, expression string) {
	p.t.Helper()
	for range 60 {
		if eval[bool](p, "Boolean("+expression+")") {
			p.checkFocusSeen()
			return
		}
		p.press(kb.Tab)
	}
	p.t.Fatalf("Tab does not come to %s", what)
}

// checkFocusSeen fails the test if nothing shows where the focus is.
func (p *tab) checkFocusSeen() {
	p.t.Helper()
	if !eval[bool](p, `(() => {
		const style = getComputedStyle(document.activeElement);
		return style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 1;
	})()`) {
		p.t.Errorf("nothing shows that the focus is on %s", eval[string](p, focused+".outerHTML.slice(0, 200)"))
	}
}

func TestKeyboardSkipsToTheContent(t *testing.T) {
	g := startGateway(t)
	p := openTab(t, g, desktop)
	p.open("#/policies")
	p.waitText("main h1", "Policies")
	p.press(kb.Tab)
	p.wait("the first stop is the way past the navigation", focused+`.innerText === "Skip to the content"`)
	p.wait("it is seen", `document.activeElement.getBoundingClientRect().top >= 0`)
	p.press(kb.Enter)
	p.wait("the focus is on the content", focused+`.closest("main") !== null`)
	p.waitText("main h1", "Policies") // and not at an address of that name
}

func TestKeyboardNavigates(t *testing.T) {
	g := startGateway(t)
	g.hold(t, "jobs/1", "an-owner")
	g.hold(t, "jobs/2", "an-owner")
	p := openTab(t, g, desktop)
	p.open("#/")
	p.waitText("main h1", "Overview")
	p.tabTo("Locks in the navigation", focused+`.innerText === "Locks"`)
	p.press(kb.Enter)
	p.waitText("main h1", "Locks")
	p.wait("the navigation says where one is", `document.querySelector("nav [aria-current=page]").innerText === "Locks"`)
	p.wait("the focus went with it", focused+`.closest("main") !== null`)
	p.waitText("main table", "jobs/2")

	p.tabTo("the button that sorts by lock", focused+`.matches("th button") && document.activeElement.innerText.startsWith("Lock")`)
	p.press(kb.Enter)
	p.wait("the order is told", `document.querySelector("th[aria-sort=descending]")?.innerText.startsWith("Lock")`)
	p.wait("the order is other", `document.querySelector("main tbody tr").innerText.includes("jobs/2")`)
	p.wait("the focus has stayed", focused+`.matches("th button")`)
	p.wait("the order is in the address", `location.hash.includes("order=desc")`)
}

func TestKeyboardBreaksALock(t *testing.T) {
	g := startGateway(t)
	g.hold(t, "jobs/42", "an-owner")
	p := openTab(t, g, desktop)
	p.open(lockHash("jobs/42"))
	p.waitText("main", "an-owner")
	p.tabTo("the button that breaks", focused+`.matches("button.danger")`)
	p.press(kb.Enter)
	p.wait("the dialog is open, and asks for the reason", focused+`.matches("dialog textarea")`)
	p.press(kb.Escape)
	p.wait("Escape closes it", `!document.querySelector("dialog").open`)
	p.wait("the focus is back", focused+`.matches("button.danger")`)

	p.press(kb.Enter)
	p.wait("it is open again", focused+`.matches("dialog textarea")`)
	p.press("the host was replaced")
	p.tabTo("the button that confirms", focused+`.matches("dialog button[type=submit]")`)
	p.press(kb.Enter)
	p.waitText("dialog", "Broken")
	lock, err := g.Lock(t.Context(), "jobs/42")
	check(t, err)
	if lock.State != "free" {
		t.Errorf("the lock is %s", lock.State)
	}
}

// TestThemeIsKept changes the colours by the keyboard, and finds them again after the page was loaded anew.
func TestThemeIsKept(t *testing.T) {
	g := startGateway(t)
	p := openTab(t, g, desktop)
	p.open("#/policies")
	p.waitText("main", "Policies")
	p.tabTo("the button for the colours", focused+`.id === "theme"`)
	for range 4 {
		if eval[string](p, "document.documentElement.dataset.theme") == "dark" {
			break
		}
		p.press(kb.Enter)
	}
	p.checkColours(true)
	p.open("?again#/locks")
	p.waitText("main h1", "Locks")
	p.checkColours(true)
}

// TestReaderIsTold shows that what changes by itself is told to who can't see it, and that numbers which tick are not.
func TestReaderIsTold(t *testing.T) {
	g := startGateway(t)
	lease := g.hold(t, "jobs/42", "an-owner")
	p := openTab(t, g, desktop)
	p.open(lockHash("jobs/42"))
	p.waitText("main", "Time left") // the history may name the owner before it is shown that it holds the lock
	if !eval[bool](p, `document.querySelector("#banner").getAttribute("role") === "status"`) {
		t.Error("the banner is no status")
	}
	if found := eval[int](p, `document.querySelectorAll("[aria-live] time, [role=status] time").length`); found > 0 {
		t.Errorf("%d ticking times are in live regions", found)
	}
	check(t, g.Release(t.Context(), "jobs/42", releaseOf(lease)))
	p.wait("the release is told", `document.querySelector("#announcer").textContent.includes("free")`)
}
