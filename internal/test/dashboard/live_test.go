//go:build unix

package dashboard

import (
	"testing"

	"github.com/fencegate/fencegate/internal/test/testenv/postgres"
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

// TestPagesWithoutDatabase kills PostgreSQL under a gateway that lives: pages say that they are not current, the overview
// has the error of the driver once, and all are live again when the database is back.
func TestPagesWithoutDatabase(t *testing.T) {
	t.Parallel()
	cluster := postgres.NewCluster(t)
	g := startGatewayOn(t, cluster.URL())
	g.hold(t, "jobs/42", "an-owner")
	hashes := []string{"#/", "#/rejections", "#/locks", lockHash("jobs/42")}
	tabs := make([]*tab, len(hashes))
	for i, hash := range hashes {
		tabs[i] = openTab(t, g, desktop)
		tabs[i].allow("503")
		tabs[i].open(hash)
		tabs[i].waitText("#live", "Live")
		tabs[i].waitLoaded()
	}
	cluster.Kill()
	for _, p := range tabs {
		p.waitText("#live", "Not current")
		p.waitText("#banner", "database")
	}
	eval[bool](tabs[2], `Boolean(performance.clearResourceTimings(), true)`)
	tabs[2].wait("the list was read again and again", `performance.getEntriesByType("resource")
		.filter((entry) => entry.name.includes("/v1/locks")).length > 1`)
	if !eval[bool](tabs[2], `document.querySelector("main tbody tr").checkVisibility()`) {
		t.Error("the rows of the list have disappeared")
	}
	tabs[0].waitText("main", "no lock is granted")
	tabs[0].wait("the driver's error is shown once", `document.body.innerText.split("failed to connect").length === 2`)
	cluster.Restart()
	for _, p := range tabs {
		p.waitText("#live", "Live")
	}
}
