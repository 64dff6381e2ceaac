//go:build unix

package dashboard

import (
	_ "embed"
	"encoding/json"
	"os"
	"strings"

	"github.com/fencegate/fencegate/internal/test/testenv/process"
)

var (
	//go:embed testdata/width.js
	widthScript string
	//go:embed testdata/structure.js
	structureScript string
	//go:embed testdata/colours.js
	coloursScript string
)

// checkWidth fails the test if the page can be scrolled sideways.
func (p *tab) checkWidth() {
	p.t.Helper()
	if wide := eval[[]string](p, widthScript); len(wide) > 0 {
		p.t.Errorf("the page can be scrolled sideways: %s", strings.Join(wide, "; "))
	}
}

// checkStructure fails the test for what a screen reader could not announce.
func (p *tab) checkStructure() {
	p.t.Helper()
	for _, fault := range eval[[]string](p, structureScript) {
		p.t.Error(fault)
	}
}

// checkColours fails the test if the page is not dark or light as wanted, or if a text has a contrast below 4.5 to 1.
func (p *tab) checkColours(dark bool) {
	p.t.Helper()
	type colours struct {
		Background float64
		Faint      []string
	}
	found := eval[colours](p, coloursScript)
	if dark != (found.Background < 0.2) {
		p.t.Errorf("the background has a luminance of %.2f; want dark: %v", found.Background, dark)
	}
	for _, text := range found.Faint {
		p.t.Errorf("a text has too little contrast: %s", text)
	}
}

// builtMax is the greatest number of table rows that a page may build at once.
const builtMax = 500

// checkRows fails the test if a page builds too many elements.
func (p *tab) checkRows() {
	p.t.Helper()
	if n := eval[int](p, `document.querySelectorAll("main tr, main svg > *").length`); n > 20*builtMax {
		p.t.Errorf("the page has %d rows and marks, want at most %d", n, 20*builtMax)
	}
	if n := eval[int](p, `document.querySelectorAll("main tbody tr").length`); n > builtMax {
		p.t.Errorf("the page has %d rows, want at most %d", n, builtMax)
	}
	p.checkWidth()
}

// checkNotReloaded marks the page, and returns a check that it was not loaded again meanwhile.
func (p *tab) checkNotReloaded() (check func()) {
	p.t.Helper()
	eval[bool](p, "window.notReloaded = true")
	return func() {
		p.t.Helper()
		if !eval[bool](p, "window.notReloaded === true") {
			p.t.Error("the page was loaded again")
		}
	}
}

const axePath = "node_modules/axe-core/axe.min.js"

// checkAxe fails the test for what axe-core finds: violations of WCAG 2.2, levels A and AA, and of best practices.
func (p *tab) checkAxe() {
	p.t.Helper()
	if !eval[bool](p, "Boolean(window.axe)") {
		script, err := os.ReadFile(axePath)
		if err != nil {
			process.Missing(p.t, "axe-core is not installed in internal/test/dashboard: "+err.Error())
		}
		eval[bool](p, string(script)+"\n;true")
	}
	eval[bool](p, `(window.axeFound = null, axe.run(document, {resultTypes: ["violations"]}).then(
		({violations}) => { window.axeFound = JSON.stringify(violations.map(({id, help, nodes}) =>
			id + ": " + help + ": " + nodes.slice(0, 4).map(({html}) => html.slice(0, 160)).join(" | "))); }), true)`)
	p.wait("axe-core has ended", "window.axeFound")
	var found []string
	check(p.t, json.Unmarshal([]byte(eval[string](p, "window.axeFound")), &found))
	for _, violation := range found {
		p.t.Error(violation)
	}
}
