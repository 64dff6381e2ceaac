//go:build unix

package dashboard

import (
	"testing"

	"github.com/fencegate/fencegate/gateway/api"
)

// TestNewRejectionAppears checks that each page that shows rejections adds a new one without being reloaded.
func TestNewRejectionAppears(t *testing.T) {
	g := startGateway(t)
	stale := g.hold(t, "jobs/42", "sleepy-worker")
	_, err := g.Break(t.Context(), "jobs/42", api.BreakRequest{Reason: "does not answer"})
	check(t, err)
	g.hold(t, "jobs/42", "next-worker")

	for _, page := range []struct{ name, hash, before, after string }{
		{"overview", "#/", "Overview", "sleepy-worker"},
		{"rejections", "#/rejections", "Rejections", "late rejections"},
		{"filtered", "#/rejections?owner_id=sleepy-worker&code=token_stale", "Rejections", "late filtered"},
		{"lock", lockHash("jobs/42"), "next-worker", "late lock"},
	} {
		t.Run(page.name, func(t *testing.T) {
			p := openTab(t, g, desktop)
			p.withoutPolling()
			p.open(page.hash)
			p.waitText("main", page.before)
			p.waitText("#live", "Live")
			notReloaded := p.checkNotReloaded()
			g.putStale(t, stale, "late "+page.name)
			p.waitText("main", page.after)
			notReloaded()
		})
	}
}

// TestRepeatedRejectionsAreOneGroup checks that repeated writes of a zombie are one row with a growing count.
func TestRepeatedRejectionsAreOneGroup(t *testing.T) {
	g := startGateway(t)
	stale, _ := g.zombie(t, "jobs/42", "row", "sleepy-worker", "next-worker")
	p := openTab(t, g, desktop)
	p.open("#/rejections")
	const writes = `[...document.querySelectorAll("main tbody tr")]
		.filter((row) => row.innerText.includes("jobs/42") && row.querySelector("[data-label=Key]"))
		.map((row) => row.querySelector("[data-label=Writes]").innerText.trim()).join()`
	p.wait("the group has one write", writes+` === "1"`)
	notReloaded := p.checkNotReloaded()
	for range 4 {
		g.putStale(t, stale, "row")
	}
	p.wait("the group has five writes", writes+` === "5"`)
	notReloaded()
}

// TestLockPageFollowsItsLock checks that a lock's page shows a new waiter, a release and the next grant.
func TestLockPageFollowsItsLock(t *testing.T) {
	g := startGateway(t)
	first := g.hold(t, "jobs/42", "first-owner")
	p := openTab(t, g, desktop)
	p.withoutPolling()
	p.open(lockHash("jobs/42"))
	p.waitText("#live", "Live")
	p.waitText("main", "No waiters")
	notReloaded := p.checkNotReloaded()

	g.queue(t, "jobs/42", "second-owner")
	p.waitText("main", "1 waiting")
	p.wait("the wait-for graph has both owners", `["first-owner", "second-owner"].every((owner) =>
		[...document.querySelectorAll(".graph .node title")].some((title) => title.textContent === owner))`)

	g.release(t, first)
	p.waitHolder("second-owner")
	p.waitText("main", "No waiters")
	p.waitText("main", "released")
	p.wait("the wait-for graph is hidden", `!document.querySelector(".graph")?.checkVisibility()`)
	notReloaded()
}

// TestTimeLeftUsesTheDatabaseClock checks that a wrong clock of the browser's computer does not change the time left.
func TestTimeLeftUsesTheDatabaseClock(t *testing.T) {
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
