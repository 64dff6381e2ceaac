//go:build unix

package dashboard

import (
	"os"
	"testing"

	"github.com/fencegate/fencegate/internal/test/testenv/postgres"
)

func TestMain(m *testing.M) {
	code := postgres.Main(m)
	chromium.stop()
	os.Exit(code)
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
