//go:build unix

package dashboard

import "testing"

// openBreak opens the dialog by which a lock is broken.
func (p *tab) openBreak(lock, holder string) {
	p.t.Helper()
	p.open(lockHash(lock))
	p.waitText("main", holder)
	p.click("button.danger:not(:disabled)")
	p.wait("the dialog is open", `document.querySelector("dialog").open`)
}

func TestBreakWithAReason(t *testing.T) {
	g := startGateway(t)
	lease := g.hold(t, "jobs/42", "stuck-owner")
	g.queue(t, "jobs/42", "next-owner")
	p := openTab(t, g, desktop)
	p.openBreak("jobs/42", "stuck-owner")
	for _, text := range []string{"stuck-owner", "next-owner", "is granted the lock at once", "can’t be undone"} {
		p.waitText("dialog", text)
	}

	p.click("dialog button[type=submit]")
	p.wait("nothing happens without a reason", `document.querySelector("dialog").open && document.querySelector("dialog textarea").matches(":invalid")`)
	state, err := g.Lock(t.Context(), "jobs/42")
	check(t, err)
	if state.FencingToken != lease.FencingToken {
		t.Fatal("it was broken without a reason")
	}

	p.write("dialog textarea", "host a7 is <b>dead</b>")
	p.click("dialog button[type=submit]")
	p.waitText("dialog", "Broken")
	p.waitText("dialog", "stuck-owner")
	p.click("dialog .actions button")
	p.wait("the dialog is closed", `!document.querySelector("dialog").open`)
	p.wait("the next owner holds it", `document.querySelector("main .facts").innerText.includes("next-owner")`)
	p.waitText("main", "host a7 is <b>dead</b>") // in the history
	g.shutOut(t, lease, "row")
	p.waitText("main", "token_stale")
}

// TestBreakOfAnotherLease shows that a break never ends a lease of which the dialog did not tell.
func TestBreakOfAnotherLease(t *testing.T) {
	g := startGateway(t)
	first := g.hold(t, "jobs/42", "first-owner")
	p := openTab(t, g, desktop)
	p.openBreak("jobs/42", "first-owner")
	p.write("dialog textarea", "stuck")
	check(t, g.Release(t.Context(), "jobs/42", releaseOf(first)))
	second := g.hold(t, "jobs/42", "second-owner")
	p.wait("the page knows", `document.querySelector("main .facts").innerText.includes("second-owner")`)

	p.click("dialog button[type=submit]")
	p.waitText("dialog", "changed hands")
	p.waitText("dialog", "second-owner")
	state, err := g.Lock(t.Context(), "jobs/42")
	check(t, err)
	if state.State != "held" || state.FencingToken != second.FencingToken {
		t.Fatalf("the lock is %s with token %d", state.State, state.FencingToken)
	}
	p.click("dialog button[type=submit]")
	p.waitText("dialog", "Broken")
}

// TestBreakFails shows that an error is told where it was asked for.
func TestBreakFails(t *testing.T) {
	g := startGateway(t)
	g.hold(t, "jobs/42", "stuck-owner")
	p := openTab(t, g, desktop)
	p.allow("net::ERR_")
	p.openBreak("jobs/42", "stuck-owner")
	p.write("dialog textarea", "stuck")
	g.kill()
	p.click("dialog button[type=submit]")
	p.waitText("dialog [role=alert]", "reached")
	g.start(t)
	p.waitText("#live", "Live")
	p.click("dialog button[type=submit]")
	p.waitText("dialog", "Broken")
}
