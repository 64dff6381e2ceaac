//go:build unix

package dashboard

import (
	"os"
	"testing"

	"github.com/fencegate/fencegate/internal/pgtest"
)

func TestMain(m *testing.M) {
	code := pgtest.Main(m)
	chromium.stop()
	os.Exit(code)
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
