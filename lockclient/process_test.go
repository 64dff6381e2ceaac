package lockclient_test

import (
	"context"
	"fmt"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencegate/fencegate/internal/gatewayprocess"
	"github.com/fencegate/fencegate/internal/pgtest"
	"github.com/fencegate/fencegate/lockclient"
)

// patience bounds every wait; none should need a tenth of it.
const patience = time.Minute

// gatewayURL is of a gateway process that serves all tests and examples. Each uses locks of its own.
var gatewayURL string

// program is the path of fencegate as it stands in this tree, built once.
var program func() (string, error)

func build(path string) (string, error) {
	output, err := exec.Command("go", "build", "-buildvcs=false", "-o", path, "github.com/fencegate/fencegate/cmd/fencegate").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, output)
	}
	return path, nil
}

// startProcess runs a gateway that is killed when the test ends.
func startProcess(t testing.TB, databaseURL string, args ...string) *gatewayprocess.Process {
	t.Helper()
	path, err := program()
	check(t, err)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	process, err := gatewayprocess.Start(ctx, path, append([]string{"--database-url", databaseURL}, args...)...)
	check(t, err)
	t.Cleanup(process.Kill)
	return process
}

// shared gives a client of the gateway of all tests, and a name that no other test has.
func shared(t *testing.T, opts ...lockclient.Option) (*lockclient.Client, string) {
	t.Helper()
	if gatewayURL == "" {
		pgtest.Migrated(t) // skips or fails, and says why
		t.Fatal("there is no gateway")
	}
	return newClient(t, gatewayURL, opts...), strings.ToLower(t.Name())
}

// patient is a context that ends long after everything should have happened.
func patient(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// suite is what the tests of a package stand on, in the place of a test: it ends after all of them.
type suite struct {
	testing.TB
	undo []func()
}

// gateway is the URL of a gateway before a database of its own, or empty where there is no PostgreSQL: each test
// tells that itself.
func (s *suite) gateway() (url string) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		url = startProcess(s, pgtest.Migrated(s)).URL
	}()
	<-ended
	return url
}

func (s *suite) end() {
	for _, undo := range slices.Backward(s.undo) {
		undo()
	}
}

func (s *suite) Helper() {}

func (s *suite) Cleanup(undo func()) { s.undo = append(s.undo, undo) }

func (s *suite) Skip(...any) { runtime.Goexit() }

func (s *suite) Fatal(args ...any) {
	fmt.Println(args...)
	runtime.Goexit()
}

// Error is of a database that is dropped when its server has ended.
func (s *suite) Error(...any) {}
