//go:build unix

package dashboard

import (
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/lockclient"
	"github.com/fencegate/fencegate/lockclient/admin"
	"github.com/fencegate/fencegate/lockclient/api"
)

// rowOf is a JavaScript expression for the first rejection with a text; %s is the text.
const rowOf = `[...document.querySelectorAll("main tr.opens")].find((row) => row.innerText.includes(%s))`

// openDrawerOf opens the drawer of the rejection of an owner, by a click on the row beside its links.
func (p *tab) openDrawerOf(owner string) {
	p.t.Helper()
	p.wait("the rejection of "+owner+" is listed", rowOf, owner)
	p.wait("the drawer is open", `(`+rowOf+`.querySelector("[data-label=Late]").click(),
		document.querySelector("dialog.drawer").open)`, owner)
	p.waitText("dialog.drawer", owner)
}

// openValue opens the first value of a lock's page, which has a text. The page itself clicks: what is above the button may
// grow while a click by coordinates is on its way.
func (p *tab) openValue(text string) {
	p.t.Helper()
	p.wait("a value can be opened", `(() => {
		const button = [...document.querySelectorAll("main button")]
			.find((node) => node.innerText.includes("Show") && node.checkVisibility());
		button?.click();
		return button;
	})()`)
	p.waitText("dialog[open] .value", text)
}

// TestDrawer checks that the drawer of a zombie says and draws who was granted what and when, that it is named, takes the
// focus, is in the address, closes at Escape and returns the focus to its row, even though the row has changed meanwhile.
func TestDrawer(t *testing.T) {
	t.Parallel()
	g := startGateway(t)
	stale := g.hold(t, "jobs/42", "sleepy-worker")
	_, err := g.Break(t.Context(), "jobs/42", api.BreakRequest{Reason: "sleepy-worker does not answer"})
	check(t, err)
	g.put(t, g.hold(t, "jobs/42", "next-worker"), "state", "new", 5)
	g.putStale(t, stale, "state")
	p := openTab(t, g, desktop)
	p.open("#/rejections")
	p.wait("the rejection has a button", `document.querySelector("main button.open")`)
	p.wait("the shortest range with data is in the address", `location.hash.includes("range=15m")`)
	p.tabTo("the button of the rejection", focused+`.matches("button.open")`)
	p.press(kb.Enter)
	p.wait("the drawer has the focus", focused+`.closest("dialog.drawer[open]")`)
	for _, text := range []string{
		"sleepy-worker on jobs/42", "next-worker had taken over", "breaks the lease", "sleepy-worker does not answer",
		"rejected, token_stale (superseded)", "Nothing is stored", "next-worker has written",
	} {
		p.waitText("dialog.drawer", text)
	}
	p.wait("the drawer is drawn with two lanes", `document.querySelectorAll("dialog.drawer svg.sequence .held").length === 2 &&
		document.querySelector("dialog.drawer svg.sequence .refused")`)
	p.wait("the drawer has a name", `document.getElementById(document.querySelector("dialog.drawer").getAttribute(
		"aria-labelledby")).textContent`)
	p.wait("the rejection is in the address", `/[?&]rejection=[0-9]+/.test(location.hash)`)

	g.putStale(t, stale, "state")
	p.wait("the row has changed", `document.querySelector("main [data-label=Writes] .cell").textContent === "2"`)
	p.press(kb.Escape)
	p.wait("Escape has closed the drawer", `!document.querySelector("dialog.drawer").open`)
	p.wait("the button of the row has the focus", focused+`.matches("button.open")`)
	p.wait("the rejection is no longer in the address", `!location.hash.includes("rejection=")`)

	p.press(kb.Enter)
	p.clickText("dialog.drawer a", "The owner")
	p.waitText("main h1", "sleepy-worker")
	p.waitText("main", "Not holding any lock")
	p.waitText("main", "token_stale")
	p.waitText("#live", "Live")
	g.hold(t, "jobs/43", "sleepy-worker")
	p.waitText("main", "jobs/43")
}

// TestHeadline checks that the overview says that nothing was shut out, then counts zombies, names the latest and who had
// taken over, and opens its drawer; that data conflicts alone raise no warning; and that it says since when it counts, or
// shows the last hour if the gateway is older.
func TestHeadline(t *testing.T) {
	t.Parallel()
	g := startGateway(t)
	p := openTab(t, g, desktop)
	p.open("#/")
	p.waitText(".headline", "No zombie wrote since ")
	lease := g.hold(t, "jobs/1", "careful-worker")
	conflicts := func() {
		_, err := g.Put(t.Context(), "jobs/1", "state", lockclient.Write{
			Token: tokenOf(lease, 1), Value: []byte("x"), ContentType: "text/plain", IfMatch: new(int64(7)),
		})
		if api.Code(problemCode(err)) != api.CodeVersionMismatch {
			t.Fatalf("a write with a wrong version returned %v", err)
		}
	}
	conflicts()
	p.waitText(".headline", "1 data conflict")
	p.wait("a data conflict raises no warning", `!document.querySelector(".headline .defects") &&
		!document.querySelector(".tile[data-tone=warn], .tile[data-tone=bad]")`)

	stale, _ := g.zombie(t, "jobs/42", "state", "sleepy-worker", "next-worker")
	g.putStale(t, stale, "state")
	p.waitText(".headline", "2 zombie writes shut out since ")
	p.waitText(".headline", "sleepy-worker on jobs/42")
	p.waitText(".headline", "next-worker had taken over with")
	p.wait("zombies that were shut out raise no warning", `!document.querySelector(".headline .defects") &&
		!document.querySelector(".tile[data-tone=warn], .tile[data-tone=bad]")`)
	p.clickText(".headline button", "Show what happened")
	p.waitText("dialog.drawer", "breaks the lease")
	p.press(kb.Escape)
	p.wait("the focus has returned", focused+`.closest(".headline")`)
	p.waitText("main .intro", "when this gateway started")

	g.sql(t, "update fence.gateway_states set started_at = started_at - interval '2 h'")
	p.open("#/locks")
	p.open("#/")
	p.waitText(".headline", "2 zombie writes shut out in the last hour; none stored.")
	p.waitText("main .intro", "The charts show the last hour.")
}

func problemCode(err error) string {
	if problem := lockclient.ProblemOf(err); problem != nil {
		return string(problem.Code)
	}
	return ""
}

// TestOldDataIsInRange checks that pages without a time in their address choose the shortest one with data, and that
// any other can be chosen.
func TestOldDataIsInRange(t *testing.T) {
	t.Parallel()
	g := startGateway(t)
	g.zombie(t, "jobs/42", "state", "sleepy-worker", "next-worker")
	await.True(t, "the rejection is recorded", func() bool {
		page, err := g.Rejections(t.Context(), admin.RejectionsQuery{})
		check(t, err)
		return len(page.Rejections) == 1
	})
	g.sql(t, `update fence.rejections set first_at = first_at - interval '3 h', last_at = last_at - interval '3 h'`)
	p := openTab(t, g, desktop)
	p.allowHost("data:image") // of the browser itself, in inputs of times
	p.open("#/rejections")
	p.wait("six hours are chosen", `location.hash.includes("range=6h")`)
	p.waitText("main", "sleepy-worker")

	p.clickText("main .heading button", "Other…")
	choose := func(from, to string) {
		p.do(evaluation[chromedp.Void](`for (const [name, value] of [["since", %s], ["until", %s]]) {
			const input = document.querySelector("dialog[open] [name=" + name + "]");
			input.value = value;
			input.dispatchEvent(new Event("input", {bubbles: true}));
		}`, []any{from, to}))
		p.clickText("dialog[open] button", "Show")
	}
	choose("2020-01-02T03:04:05", "2020-01-02T03:04:04")
	p.wait("the dialog wants an end after the start", `document.querySelector("dialog[open] [name=until]:invalid")`)
	choose("2020-01-02T03:04:05", "2020-01-03T03:04:04")
	p.waitText("main", "No write was rejected in this time")
	p.wait("the time is in the address", `location.hash.includes("since=2020-01-0") &&
		location.hash.includes("until=2020-01-0")`)
	p.clickText("main .heading button", "Other…")
	choose("2020-01-02T03:04:05", "")
	p.waitText("main", "sleepy-worker")
}

// testRecordValues checks that a lock's page shows values as texts, whatever they contain, and bytes as hexadecimal.
func testRecordValues(t *testing.T, g *gateway) {
	lease := g.hold(t, "jobs/values", "an-owner")
	const hostile = `<img src=x onerror="document.body.dataset.owned=1"><script>document.body.dataset.owned=1</script>`
	for at, write := range []struct{ key, value, contentType string }{
		{"text", hostile, "text/html"}, {"bytes", "\x00\xffA", "text/plain"}, {"long", strings.Repeat("0123456789abcdef", 8192), "text/plain"},
	} {
		_, err := g.Put(t.Context(), "jobs/values", write.key, lockclient.Write{
			Token: tokenOf(lease, int64(at+1)), Value: []byte(write.value), ContentType: write.contentType,
		})
		check(t, err)
	}
	p := openTab(t, g, desktop)
	p.open(lockHash("jobs/values"))
	show := func(key string) {
		t.Helper()
		p.wait("the value can be opened", `(() => { // not by coordinates, as in openValue
			const button = document.querySelector(%s);
			button?.focus();
			button?.click();
			return button;
		})()`, `main button[aria-label="Show the value of `+key+`"]`)
		p.waitText("dialog[open] .facts", "Content type")
	}
	show("text")
	p.wait("the value is a text", `document.querySelector("dialog[open] .value").textContent === %s`, hostile)
	p.checkHarmless()
	if found := eval[int](p, `document.querySelectorAll("dialog img, dialog script").length`); found > 0 {
		t.Errorf("%d elements were made of the value", found)
	}
	p.press(kb.Escape)
	p.wait("the button has the focus again", focused+`.getAttribute("aria-label")?.includes("text")`)
	show("bytes")
	p.waitText("dialog[open] .value", "0000  00 ff 41")
	p.press(kb.Escape)
	show("long")
	p.waitText("dialog[open]", "Only the first 64 KiB are shown")
	p.wait("no more is shown", `document.querySelector("dialog[open] .value").textContent.length === 65536`)
}

// TestPhoneCards checks that rejections are short cards on a phone, at most twenty at once, and that a tap opens the
// drawer within the screen.
func TestPhoneCards(t *testing.T) {
	t.Parallel()
	g := startGateway(t)
	g.manyRejections(t, 60)
	p := openTab(t, g, phone)
	p.open("#/rejections")
	p.waitText("main", "many/00060")
	cards := eval[int](p, `document.querySelectorAll("main .rejections tbody tr").length`)
	if cards > 20 {
		t.Errorf("%d cards are shown at once, want at most 20", cards)
	}
	if height := eval[float64](p, `Math.max(...[...document.querySelectorAll("main .rejections tbody tr")]
		.map((row) => row.getBoundingClientRect().height))`); height > 175 || height < 40 {
		t.Errorf("a card is %v pixels high, want 40 to 175", height)
	}
	p.click("main .rejections tbody tr .lead")
	p.wait("the drawer is open", `document.querySelector("dialog.drawer").open`)
	p.waitText("dialog.drawer", "superseded")
	p.checkWidth()
}
