//go:build unix

package dashboard

import (
	"testing"
)

const (
	many = 10_000
	// builtMax is as many rows as a page may have built at once, however many there are.
	builtMax = 500
)

// checkRows fails the test if a page holds more rows than can be looked at.
func (p *tab) checkRows() {
	p.t.Helper()
	if rows := eval[int](p, `document.querySelectorAll("main tr, main svg > *").length`); rows > 20*builtMax {
		p.t.Errorf("there are %d rows and marks", rows)
	}
	if rows := eval[int](p, `document.querySelectorAll("main tbody tr").length`); rows > builtMax {
		p.t.Errorf("%d rows are built", rows)
	}
	p.checkWidth()
}

// TestManyLocks pages, sorts and searches through many locks.
func TestManyLocks(t *testing.T) {
	g := startGateway(t)
	g.manyLocks(t, many)
	p := openTab(t, g, desktop)
	p.open("#/locks")
	p.waitText("main .pager", "1–100 of 10,000")
	p.waitText("main tbody tr", "many/00001")
	p.checkRows()

	p.clickText("main .pager button", "Next")
	p.waitText("main .pager", "101–200 of 10,000")
	p.waitText("main tbody tr", "many/00101")
	p.clickText("main .pager button", "Next")
	p.waitText("main tbody tr", "many/00201")
	p.clickText("main .pager button", "Before")
	p.waitText("main tbody tr", "many/00101")
	p.open("?again" + eval[string](p, "location.hash")) // the place can be linked
	p.waitText("main tbody tr", "many/00101")
	p.waitText("main .pager", "101–200 of 10,000")

	p.clickText("main th button", "Token")
	p.waitText("main tbody tr", "many/10000")
	p.clickText("main th button", "Time left")
	p.waitText("main tbody tr", "many/00001")
	p.clickText("main th button", "Time left")
	p.waitText("main tbody tr", "many/10000")

	p.write("main input[name=contains]", "owner-42")
	p.wait("only that owner's are left", `[...document.querySelectorAll("main tbody tr")].every((row) => row.innerText.includes("owner-42"))`)
	p.waitText("main .pager", "of 103")
	p.wait("what was searched is in the address", `location.hash.includes("contains=owner-42")`)
	p.write("main input[name=contains]", "no such lock")
	p.waitText("main", "No lock is like that")
	p.clickText("main form button", "Clear")
	p.waitText("main .pager", "of 10,000")
}

// TestManyRejections shows all groups that the gateway keeps, a page at a time, while more come.
func TestManyRejections(t *testing.T) {
	g := startGateway(t)
	g.manyRejections(t, many)
	p := openTab(t, g, desktop)
	p.open("#/rejections")
	p.waitText("main", "many/10000")
	p.checkRows()
	still := p.stays()
	g.zombie(t, "jobs/42", "row", "sleepy-worker", "next-worker")
	p.waitText("main", "jobs/42")
	p.checkRows()
	still()

	p.open("#/rejections?owner_id=owner-42")
	p.wait("only that owner's are left", `document.querySelectorAll("main tbody tr").length > 10 &&
		[...document.querySelectorAll("main table.data")].at(-1).innerText.split("\n").every((line) => !line.includes("owner-41"))`)
	p.checkRows()
}

// TestManyWaiters shows a line that is too long to be drawn.
func TestManyWaiters(t *testing.T) {
	g := startGateway(t)
	g.hold(t, "jobs/42", "an-owner")
	g.queueMany(t, "jobs/42", 100)
	p := openTab(t, g, desktop)
	p.open(lockHash("jobs/42"))
	p.waitText("main", "100 waiting")
	p.waitText("main", "too many to be drawn")
	p.checkRows()
}
