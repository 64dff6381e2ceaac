package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// The dashboards are what the generator makes. To write them anew: go run ./deploy/grafana/generate
func TestDashboardsAreAsGenerated(t *testing.T) {
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
			t.Errorf("%s is not what is generated: run `make docs`", dashboard.file)
		}
	}
}
