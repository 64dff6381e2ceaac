//go:build unix

package dashboard

import (
	"testing"

	"github.com/fencegate/fencegate/gateway/api"
)

// stays marks the page, and tells later whether it is still the same one: what came into it came without loading it again.
func (p *tab) stays() (check func()) {
	p.t.Helper()
	eval[bool](p, "window.notLoadedAgain = true")
	return func() {
		p.t.Helper()
		if !eval[bool](p, "window.notLoadedAgain === true") {
			p.t.Error("the page was loaded again")
		}
	}
}

// TestRejectionIsSeenLive shows on each page that tells of rejections that one comes into it by itself.
func TestRejectionIsSeenLive(t *testing.T) {
	g := startGateway(t)
	stale := g.hold(t, "jobs/42", "sleepy-worker")
	_, err := g.Break(t.Context(), "jobs/42", api.BreakRequest{Reason: "does not answer"})
	check(t, err)
	g.hold(t, "jobs/42", "next-worker")

	for _, page := range []struct{ name, hash, before string }{
		{"overview", "#/", "Overview"},
		{"rejections", "#/rejections", "Rejections"},
		{"filtered rejections", "#/rejections?owner_id=sleepy-worker&code=token_stale", "Rejections"},
		{"lock", lockHash("jobs/42"), "next-worker"},
	} {
		t.Run(page.name, func(t *testing.T) {
			p := openTab(t, g, desktop)
			p.withoutPolling()
			p.open(page.hash)
			p.waitText("main", page.before)
			p.waitText("#live", "Live")
			still := p.stays()
			key := "late " + page.name
			g.shutOut(t, stale, key)
			if page.name == "overview" {
				p.waitText("main", "sleepy-worker")
			} else {
				p.waitText("main", key)
			}
			still()
		})
	}
}

// TestRejectionsOfOneStoryAreCounted shows that a zombie that hammers is one row whose count grows.
func TestRejectionsOfOneStoryAreCounted(t *testing.T) {
	g := startGateway(t)
	stale, _ := g.zombie(t, "jobs/42", "row", "sleepy-worker", "next-worker")
	p := openTab(t, g, desktop)
	p.open("#/rejections")
	const times = `[...document.querySelectorAll("main tbody tr")].filter((row) => row.innerText.includes("jobs/42") && row.querySelector("[data-label=Key]")).map((row) =>
		[...row.cells].find((cell) => cell.dataset.label === %s)?.innerText.trim()).join()`
	p.wait("the group is there once", times+` === "1"`, "Writes")
	still := p.stays()
	for range 4 {
		g.shutOut(t, stale, "row")
	}
	p.wait("the group has five writes", times+` === "5"`, "Writes")
	still()
}

// TestLockIsSeenLive follows a lock on its page through the hands of two owners.
func TestLockIsSeenLive(t *testing.T) {
	g := startGateway(t)
	first := g.hold(t, "jobs/42", "first-owner")
	p := openTab(t, g, desktop)
	p.withoutPolling()
	p.open(lockHash("jobs/42"))
	p.waitText("#live", "Live")
	p.waitText("main", "Nobody waits")
	still := p.stays()

	g.queue(t, "jobs/42", "second-owner")
	p.waitText("main", "1 waiting")
	p.wait("the drawing has both owners", `["first-owner", "second-owner"].every((owner) => [...document.querySelectorAll(".graph .node title")]
		.some((title) => title.textContent === owner))`)

	check(t, g.Release(t.Context(), "jobs/42", releaseOf(first)))
	p.wait("the second owner holds it", `document.querySelector("main .facts").innerText.includes("second-owner")`)
	p.waitText("main", "Nobody waits")
	p.waitText("main", "released")
	p.wait("the drawing is gone", `!document.querySelector(".graph")?.checkVisibility()`)
	still()
}

// TestTimeLeftIsTheDatabases shows that what is left of a lease does not depend on the clock of the browser's computer.
func TestTimeLeftIsTheDatabases(t *testing.T) {
	g := startGateway(t)
	g.hold(t, "jobs/42", "an-owner")
	for _, hash := range []string{"#/locks", lockHash("jobs/42")} {
		p := openTab(t, g, desktop)
		p.withClockAhead(3 * 60 * 60 * 1000)
		p.open(hash)
		p.waitText("main", "an-owner")
		p.wait("between five and six hours are left", `[...document.querySelectorAll("time[data-until]")].length > 0 &&
			[...document.querySelectorAll("time[data-until]")].every((node) => /^5 h/.test(node.innerText))`)
	}
}
