//go:build unix

package dashboard

import (
	"net/url"
	"strings"
	"testing"
)

// shownPage is a page of the dashboard, and what is seen on it when it has loaded, in the world that newWorld makes.
type shownPage struct {
	name, hash, heading string
	shows               []string
}

func lockHash(lock string) string { return "#/locks/" + url.PathEscape(lock) }

var shownPages = []shownPage{
	{"overview", "#/", "Overview", []string{worldLock}},
	{"rejections", "#/rejections", "Rejections", []string{worldLock, "importer-7f3a", "token_stale"}},
	{"locks", "#/locks", "Locks", []string{worldLock, "importer-91bc", "index/a", "indexer-1", "reader-2", "held", "5 h"}},
	{"lock", lockHash(worldLock), worldLock, []string{"importer-91bc", "importer-7f3a does not answer", "row/2", "importer-c0de", "superseded", "5 h"}},
	{"sessions", "#/sessions", "Sessions", []string{"indexer-1", "live", "5 h", `{"host":"a7"}`}},
	{"elections", "#/elections", "Elections", []string{worldElection, "scheduler-a", "10.0.0.7:80"}},
	{"policies", "#/policies", "Policies", []string{"reports", "same_token", "live lease required"}},
}

// see opens a page and returns when it shows what it has to.
func (p *tab) see(page shownPage) {
	p.t.Helper()
	p.open(page.hash)
	p.waitText("main h1", page.heading)
	for _, text := range page.shows {
		p.waitText("main", text)
	}
}

func TestPages(t *testing.T) {
	w := newWorld(t)
	for _, as := range []look{desktop, desktopDark, phone} {
		t.Run(as.name, func(t *testing.T) {
			for _, page := range shownPages {
				t.Run(page.name, func(t *testing.T) {
					p := openTab(t, w.gateway, as)
					p.see(page)
					p.checkWidth()
					p.checkStructure()
					p.checkColours(as.dark)
					if title := eval[string](p, "document.title"); !strings.Contains(title, "fencegate") || !strings.Contains(title, page.heading) {
						t.Errorf("the title is %q", title)
					}
				})
			}
		})
	}
}

// TestPageNotThere shows that a wrong address is told, and that the way on is there.
func TestPageNotThere(t *testing.T) {
	g := startGateway(t)
	p := openTab(t, g, desktop)
	p.open("#/nowhere")
	p.waitText("main h1", "Not found")
	p.click("main a[href='#/']")
	p.waitText("main h1", "Overview")
}

// TestLockNeverAcquired shows a lock that is not there yet, and that it is seen as soon as it is.
func TestLockNeverAcquired(t *testing.T) {
	g := startGateway(t)
	p := openTab(t, g, desktop)
	p.allow("404")
	p.withoutPolling()
	p.open(lockHash("not/yet"))
	p.waitText("main", "never acquired")
	g.hold(t, "not/yet", "first-one")
	p.waitText("main", "first-one")
}

// checkWidth fails the test if the page can be scrolled sideways.
func (p *tab) checkWidth() {
	p.t.Helper()
	wide := eval[[]string](p, `(() => {
		const room = document.documentElement.clientWidth;
		if (document.documentElement.scrollWidth <= room) return [];
		return [...document.body.querySelectorAll("*")].filter((node) => node.getBoundingClientRect().right > room + 1)
			.map((node) => node.tagName + "." + node.getAttribute("class") + " " + Math.round(node.getBoundingClientRect().right) + " of " + room).slice(0, 8);
	})()`)
	if len(wide) > 0 {
		p.t.Errorf("the page can be scrolled sideways: %s", strings.Join(wide, "; "))
	}
}

// checkStructure fails the test for what a screen reader could not tell.
func (p *tab) checkStructure() {
	p.t.Helper()
	faults := eval[[]string](p, `(() => {
		const faults = [];
		const tell = (text, node) => faults.push(text + ": " + node.outerHTML.slice(0, 160));
		const seen = (node) => node.checkVisibility();
		const nameOf = (node) => node.getAttribute("aria-label")?.trim() || node.innerText?.trim() || node.getAttribute("title")
			|| (node.getAttribute("aria-labelledby") ?? "").split(" ").map((id) => document.getElementById(id)?.innerText).join(" ").trim();
		if (document.querySelectorAll("h1").length !== 1) faults.push("there is not one h1");
		if (document.querySelectorAll("main").length !== 1) faults.push("there is not one main");
		if (!document.documentElement.lang) faults.push("the language is not told");
		for (const node of document.querySelectorAll("button, a[href]")) if (seen(node) && !nameOf(node)) tell("no name", node);
		for (const node of document.querySelectorAll("input, select, textarea")) if (seen(node) && !node.labels?.length && !node.getAttribute("aria-label")) tell("no label", node);
		for (const node of document.querySelectorAll("th")) if (!node.scope) tell("no scope", node);
		for (const node of document.querySelectorAll("table")) if (seen(node) && !node.caption?.textContent && !nameOf(node)) tell("no caption", node);
		for (const node of document.querySelectorAll("section, nav, [role=group], [role=region]")) if (seen(node) && !nameOf(node)) tell("no name", node);
		for (const node of document.querySelectorAll("svg")) {
			if (seen(node) && !node.closest("[aria-hidden=true]") && node.getAttribute("role") !== "img" && !node.closest("[role=img]")) tell("neither hidden nor an image", node);
		}
		for (const node of document.querySelectorAll("[role=img]")) if (seen(node) && !node.getAttribute("aria-label") && !node.getAttribute("aria-labelledby")) tell("an image without a text", node);
		const ids = [...document.querySelectorAll("[id]")].map((node) => node.id);
		for (const id of new Set(ids.filter((id, at) => ids.indexOf(id) !== at))) faults.push("two elements are " + id);
		return faults;
	})()`)
	for _, fault := range faults {
		p.t.Error(fault)
	}
}

// checkColours fails the test if the page is not dark or light as it should be, or a text does not stand out from what is behind it (4.5 to 1, as
// WCAG 2.2 asks for).
func (p *tab) checkColours(dark bool) {
	p.t.Helper()
	type colours struct {
		Back  float64
		Faint []string
	}
	found := eval[colours](p, `(() => {
		const canvas = new OffscreenCanvas(1, 1).getContext("2d", {willReadFrequently: true});
		const parse = (colour) => {
			canvas.clearRect(0, 0, 1, 1);
			canvas.fillStyle = colour;
			canvas.fillRect(0, 0, 1, 1);
			const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data;
			return {rgb: [r, g, b], alpha: a / 255};
		};
		const light = (rgb) => rgb.map((c) => c / 255).map((c) => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
			.reduce((sum, c, at) => sum + c * [0.2126, 0.7152, 0.0722][at], 0);
		const behind = (node) => {
			for (; node; node = node.parentElement) {
				const {rgb, alpha} = parse(getComputedStyle(node).backgroundColor);
				if (alpha > 0.99) return rgb;
			}
			return [255, 255, 255];
		};
		const faint = [];
		for (const node of document.body.querySelectorAll("*")) {
			const own = [...node.childNodes].some((child) => child.nodeType === 3 && child.textContent.trim() !== "");
			if (!own || !node.checkVisibility() || node.closest(":disabled, .hidden, .skip, [aria-hidden=true], noscript, option")) continue;
			const style = getComputedStyle(node);
			const colour = parse(node instanceof SVGElement ? style.fill : style.color);
			const [a, b] = [light(colour.rgb), light(behind(node))].sort((x, y) => y - x);
			const contrast = (a + 0.05) / (b + 0.05);
			if (contrast < 4.5 || colour.alpha < 0.99) faint.push(contrast.toFixed(2) + " " + node.outerHTML.slice(0, 120));
		}
		return {Back: light(parse(getComputedStyle(document.body).backgroundColor).rgb), Faint: faint.slice(0, 8)};
	})()`)
	if dark != (found.Back < 0.2) {
		p.t.Errorf("the background has a luminance of %.2f; dark is %v", found.Back, dark)
	}
	for _, text := range found.Faint {
		p.t.Errorf("a text is too faint: %s", text)
	}
}
