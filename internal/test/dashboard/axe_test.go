//go:build unix

package dashboard

import (
	"encoding/json"
	"os"

	"github.com/fencegate/fencegate/internal/test/testenv/process"
)

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
