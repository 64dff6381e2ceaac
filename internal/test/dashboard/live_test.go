//go:build unix

package dashboard

import (
	"testing"

	"github.com/fencegate/fencegate/lockclient/api"
)

// TestNewRejectionAppears checks that each page that shows rejections adds a new one without being reloaded, and that
// repeated writes of a zombie are one row with a growing count.
func TestNewRejectionAppears(t *testing.T) {
	t.Parallel()
	g := startGateway(t)
	stale := g.hold(t, "jobs/42", "sleepy-worker")
	_, err := g.Break(t.Context(), "jobs/42", api.BreakRequest{Reason: "does not answer"})
	check(t, err)
	g.hold(t, "jobs/42", "next-worker")

	pages := []struct{ hash, before, after string }{
		{"#/", "Overview", "sleepy-worker"},
		{lockHash("jobs/42"), "next-worker", "late write"},
		{"#/rejections?owner_id=sleepy-worker&code=token_stale", "Rejections", "late write"},
		{"#/rejections", "Rejections", "late write"},
	}
	var p *tab
	var notReloaded []func()
	var shown []*tab
	for _, page := range pages {
		p = openTab(t, g, desktop)
		if page.hash != lockHash("jobs/42") { // a watch does not report rejections
			p.withoutPolling()
		}
		p.open(page.hash)
		p.waitText("main", page.before)
		p.waitText("#live", "Live")
		shown = append(shown, p)
		notReloaded = append(notReloaded, p.checkNotReloaded())
	}
	g.putStale(t, stale, "late write")
	for i, page := range pages {
		shown[i].waitText("main", page.after)
	}

	const writes = `[...document.querySelectorAll("main tbody tr")]
		.filter((row) => row.innerText.includes("jobs/42") && row.querySelector("[data-label=Token]"))
		.map((row) => row.querySelector("[data-label=Writes]").innerText.trim()).join()`
	p.wait("the group has one write", writes+` === "1"`)
	for range 4 {
		g.putStale(t, stale, "late write")
	}
	p.wait("the group has five writes", writes+` === "5"`)
	for _, check := range notReloaded {
		check()
	}
}

// testLockPageFollowsItsLock checks that a lock's page shows the first lease of a lock that did not exist, a new waiter,
// a release and the next grant. It announces changes to screen readers, but not ticking times.
func testLockPageFollowsItsLock(t *testing.T, g *gateway) {
	p := openTab(t, g, desktop)
	p.allow("404")
	p.withoutPolling()
	p.open(lockHash("jobs/followed"))
	p.waitText("#live", "Live")
	p.waitText("main", "never acquired")
	notReloaded := p.checkNotReloaded()
	first := g.hold(t, "jobs/followed", "first-owner")
	p.waitHolder("first-owner")
	p.waitText("main", "No waiters")

	g.queue(t, "jobs/followed", "second-owner")
	p.waitText("main", "1 waiting")
	p.wait("the wait-for graph has both owners", `["first-owner", "second-owner"].every((owner) =>
		[...document.querySelectorAll(".graph .node title")].some((title) => title.textContent === owner))`)

	g.release(t, first)
	p.waitHolder("second-owner")
	p.waitText("main", "No waiters")
	p.waitText("main", "released")
	p.wait("the wait-for graph is hidden", `!document.querySelector(".graph")?.checkVisibility()`)

	if !eval[bool](p, `document.querySelector("#banner").getAttribute("role") === "status"`) {
		t.Error("the banner does not have the role status")
	}
	if found := eval[int](p, `document.querySelectorAll("[aria-live] time, [role=status] time").length`); found > 0 {
		t.Errorf("%d ticking times are in live regions, want none", found)
	}
	_, err := g.Break(t.Context(), "jobs/followed", api.BreakRequest{Reason: "the end"})
	check(t, err)
	p.wait("the end is announced", `document.querySelector("#announcer").textContent.includes("free")`)
	notReloaded()
}

// TestTimeLeftUsesTheDatabaseClock checks that a wrong clock of the browser's computer does not change the time left.
func TestTimeLeftUsesTheDatabaseClock(t *testing.T) {
	t.Parallel()
	g := startGateway(t)
	g.hold(t, "jobs/42", "an-owner")
	p := openTab(t, g, desktop)
	p.withClockAhead(3 * 60 * 60 * 1000)
	for _, hash := range []string{"#/locks", lockHash("jobs/42")} {
		p.open(hash)
		p.waitText("main", "an-owner")
		p.wait("the time left is between five and six hours", `document.querySelectorAll("time[data-until]").length > 0 &&
			[...document.querySelectorAll("time[data-until]")].every((node) => /^5 h/.test(node.innerText))`)
	}
}
