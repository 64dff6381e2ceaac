//go:build unix

package dashboard

import "testing"

// openBreak opens the dialog that breaks a lock.
func (p *tab) openBreak(lock, holder string) {
	p.t.Helper()
	p.open(lockHash(lock))
	p.waitText("main", holder)
	p.click("button.danger")
	p.wait("the dialog is open", `document.querySelector("dialog").open`)
}

// waitHolder waits until the page of a lock shows its holder.
func (p *tab) waitHolder(owner string) {
	p.t.Helper()
	p.wait(owner+" is shown as the holder", `document.querySelector("main .facts").innerText.includes(%s)`, owner)
}

// testBreakRequiresReason checks that a lock is broken only with a reason, which its history then shows.
func testBreakRequiresReason(t *testing.T, g *gateway) {
	lease := g.hold(t, "jobs/broken", "stuck-owner")
	g.queue(t, "jobs/broken", "next-owner")
	p := openTab(t, g, desktop)
	p.openBreak("jobs/broken", "stuck-owner")
	for _, text := range []string{"stuck-owner", "next-owner", "is granted the lock at once", "can’t be undone"} {
		p.waitText("dialog", text)
	}

	p.click("dialog button[type=submit]")
	p.wait("the dialog stays open and requires a reason",
		`document.querySelector("dialog").open && document.querySelector("dialog textarea").matches(":invalid")`)
	state, err := g.Lock(t.Context(), "jobs/broken")
	check(t, err)
	if state.FencingToken != lease.FencingToken {
		t.Fatal("the lock was broken without a reason")
	}

	p.write("dialog textarea", "host a7 is <b>dead</b>")
	p.click("dialog button[type=submit]")
	p.waitText("dialog", "Broken")
	p.waitText("dialog", "stuck-owner")
	p.click("dialog .actions button")
	p.wait("the dialog is closed", `!document.querySelector("dialog").open`)
	p.waitHolder("next-owner")
	p.waitText("main", "host a7 is <b>dead</b>") // in the history
	g.putStale(t, lease, "row")
	p.waitText("main", "token_stale")
}

// TestBreakAsksAgain checks that a break never ends a lease that the dialog did not name, and that it can be repeated
// after a failed request, which the dialog shows.
func TestBreakAsksAgain(t *testing.T) {
	t.Parallel()
	g := startGateway(t)
	first := g.hold(t, "jobs/42", "first-owner")
	p := openTab(t, g, desktop)
	p.allow("net::ERR_")
	p.openBreak("jobs/42", "first-owner")
	p.write("dialog textarea", "stuck")
	g.release(t, first)
	second := g.hold(t, "jobs/42", "second-owner")
	p.waitHolder("second-owner")

	p.click("dialog button[type=submit]")
	p.waitText("dialog", "changed hands")
	p.waitText("dialog", "second-owner")
	state, err := g.Lock(t.Context(), "jobs/42")
	check(t, err)
	if state.State != "held" || state.FencingToken != second.FencingToken {
		t.Fatalf("the lock is %s with token %d, want held with token %d",
			state.State, state.FencingToken, second.FencingToken)
	}

	g.process.Kill()
	p.click("dialog button[type=submit]")
	p.waitText("dialog [role=alert]", "reached")
	g.start(t)
	p.waitText("#live", "Live")
	p.click("dialog button[type=submit]")
	p.waitText("dialog", "Broken")
}
