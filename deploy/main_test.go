package deploy

import (
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/fencegate/fencegate/internal/gatewayprocess"
	"github.com/fencegate/fencegate/internal/pgtest"
)

var scratch string

func TestMain(m *testing.M) {
	var err error
	if scratch, err = os.MkdirTemp("", "fencegate-deploy-"); err != nil {
		panic(err)
	}
	if err := os.Chmod(scratch, 0o755); err != nil {
		panic(err)
	}
	code := pgtest.Main(m)
	_ = os.RemoveAll(scratch)
	os.Exit(code)
}

var built = sync.OnceValues(func() (string, error) {
	path := filepath.Join(scratch, "fencegate")
	build := exec.Command("go", "build", "-buildvcs=false", "-o", path, "../cmd/fencegate")
	build.Stderr = os.Stderr
	return path, build.Run()
})

// fencegate is the path of the program.
func fencegate(t *testing.T) string {
	t.Helper()
	path, err := built()
	if err != nil {
		t.Fatalf("go build: %v", err)
	}
	return path
}

// gateways starts some before one database. They end with the test.
func gateways(t *testing.T, n int, args ...string) []*gatewayprocess.Process {
	t.Helper()
	url := pgtest.Migrated(t)
	var all []*gatewayprocess.Process
	for range n {
		gateway, err := gatewayprocess.Start(t.Context(), fencegate(t), append([]string{"--database-url", url}, args...)...)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			gateway.Kill()
			if t.Failed() {
				t.Logf("%s logged:\n%s", gateway.URL, gateway.Log())
			}
		})
		all = append(all, gateway)
	}
	return all
}

// patience is for what takes a second, on a machine that is busy with other things.
const patience = 90 * time.Second

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !is(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("after %s it is not so that %s", patience, what)
		}
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
