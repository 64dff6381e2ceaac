package postgres

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencegate/fencegate/internal/embeddedpg"
	"github.com/fencegate/fencegate/internal/testenv/process"
)

// patience bounds each operation on a server. None should take a tenth of it.
const patience = time.Minute

// urlEnv names a server that the user wants tests to use.
const urlEnv = "FENCEGATE_DATABASE_URL"

// server is where databases are made.
type server struct {
	url  string // of a database to connect to for making others
	stop func() error

	template        template // of Migrated
	gatewayTemplate template // of ForGateway
	copying         string   // how databases are copied, a part of the statement
}

// template is a database that tests get copies of.
type template struct {
	once sync.Once
	name string // "" until it is made
	err  error
}

// errNone says that there is nothing to run a server with.
var errNone = errors.New("no PostgreSQL to test with")

// shared is the server of this process, started by the first test that needs one.
var shared struct {
	once   sync.Once
	server *server
	err    error
}

// parallelTests is how many tests of a package run at once, unless -parallel says otherwise. It is more than there are
// processors: most tests wait most of the time.
const parallelTests = "6"

// Main runs the tests of a package and then stops what they shared. It returns the exit code for os.Exit.
func Main(m *testing.M) int {
	flag.Parse()
	chosen := false
	flag.Visit(func(f *flag.Flag) { chosen = chosen || f.Name == "test.parallel" })
	if !chosen {
		_ = flag.Set("test.parallel", parallelTests)
	}
	code := m.Run()
	if err := stopShared(); err != nil {
		fmt.Fprintln(os.Stderr, "postgres:", err)
		return max(code, 1)
	}
	return code
}

func sharedServer(t testing.TB) *server {
	t.Helper()
	shared.once.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		shared.server, shared.err = startShared(ctx)
	})
	if errors.Is(shared.err, errNone) {
		process.Missing(t, shared.err.Error())
	}
	check(t, shared.err)
	return shared.server
}

func startShared(ctx context.Context) (*server, error) {
	if given := os.Getenv(urlEnv); given != "" {
		return &server{url: given, stop: func() error { return nil }}, nil
	}
	return startEmbedded(ctx, embeddedpg.FindBinaries)
}

func stopShared() error {
	var failures []error
	if server := shared.server; server != nil {
		failures = append(failures, server.dropTemplates(), server.stop())
	}
	return errors.Join(append(failures, scratch.remove())...)
}

// databaseURL returns the URL of another database of the server. Both forms of a connection string are understood. A
// connection may take as long as a test waits for anything: on a busy machine, the default of a Store is too short.
func (s *server) databaseURL(name string) (string, error) {
	if !strings.HasPrefix(s.url, "postgres://") && !strings.HasPrefix(s.url, "postgresql://") {
		return fmt.Sprintf("%s dbname=%s connect_timeout=%.0f", s.url, name, patience.Seconds()), nil // the last one counts
	}
	u, err := url.Parse(s.url)
	if err != nil {
		return "", fmt.Errorf("%s: %w", urlEnv, err)
	}
	query := u.Query()
	query.Del("dbname")
	query.Del("database")
	query.Set("connect_timeout", fmt.Sprintf("%.0f", patience.Seconds()))
	u.Path, u.RawPath, u.RawQuery = "/"+name, "", strings.ReplaceAll(query.Encode(), "+", "%20")
	return u.String(), nil
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
