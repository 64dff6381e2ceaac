// Command generate writes the Grafana dashboards beside it, in deploy/grafana/dashboards: go run
// ./deploy/grafana/generate, from the root of the project. What is on them is in overview.go and locks.go, how they are
// laid out in dashboard.go and panel.go.
package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	to := flag.String("to", "deploy/grafana/dashboards", "directory to write to")
	flag.Parse()
	for _, dashboard := range []dashboard{overview(), locks()} {
		text, err := dashboard.render()
		if err == nil {
			//nolint:gosec // Grafana reads them as another user
			err = os.WriteFile(filepath.Join(*to, dashboard.file), text, 0o644)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "generate:", err)
			os.Exit(1)
		}
	}
}

// render is the dashboard as Grafana reads it.
func (d dashboard) render() ([]byte, error) {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	err := encoder.Encode(d.model())
	return text.Bytes(), err
}
