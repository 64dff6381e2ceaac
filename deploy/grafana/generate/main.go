// Command generate writes the Grafana dashboards in deploy/grafana/dashboards. Run it from the root of the repository:
// go run ./deploy/grafana/generate. overview.go and locks.go have the content, dashboard.go and panel.go the layout.
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
			path := filepath.Join(*to, dashboard.file)
			err = os.WriteFile(path, text, 0o644) //nolint:gosec // Grafana reads them as another user
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "generate:", err)
			os.Exit(1)
		}
	}
}

// render returns the dashboard's JSON. It has a line for each panel, so a diff shows the panels that changed.
func (d dashboard) render() ([]byte, error) {
	text, err := encode(d.model())
	if err != nil {
		return nil, err
	}
	var lines [][]byte
	for _, panel := range d.panels() {
		line, err := encode(panel)
		if err != nil {
			return nil, err
		}
		lines = append(lines, line)
	}
	page, panels := bytes.TrimSuffix(text, []byte("}")), bytes.Join(lines, []byte(",\n"))
	return fmt.Appendf(nil, "%s,\"panels\":[\n%s\n]}\n", page, panels), nil
}

// encode returns JSON on one line. PromQL's comparisons stay as they are written.
func encode(model object) ([]byte, error) {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(model)
	return bytes.TrimSpace(text.Bytes()), err
}
