package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// TestDashboardsAreCurrent compares the dashboards with the generator's. To rewrite them: go run
// ./deploy/grafana/generate
func TestDashboardsAreCurrent(t *testing.T) {
	for _, dashboard := range []dashboard{overview(), locks()} {
		want, err := dashboard.render()
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(filepath.Join("..", "dashboards", dashboard.file))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s is stale: run `make docs`", dashboard.file)
		}
	}
}
