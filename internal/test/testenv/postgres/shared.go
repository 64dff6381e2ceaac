package postgres

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/fencegate/fencegate/internal/embeddedpg"
	"github.com/fencegate/fencegate/internal/test/testenv/process"
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

// cacheFormat is raised when what is kept in the cache changes.
const cacheFormat = 1

// volatile are the settings of the shared server, which no test crashes: they save time and change nothing that a
// client can see.
var volatile = map[string]string{
	"fsync":            "off",
	"full_page_writes": "off",
	"deadlock_timeout": deadlockTimeout,
}

// startEmbedded starts the shared server from the binaries that find returns. It returns errNone if there are none.
func startEmbedded(ctx context.Context, find func() (embeddedpg.Binaries, error)) (*server, error) {
	binaries, err := find()
	if errors.Is(err, embeddedpg.ErrNoBinaries) {
		return nil, fmt.Errorf("%w: %s is not set, and %w", errNone, urlEnv, err)
	}
	if err != nil {
		return nil, err
	}
	dataDir, err := scratch.next()
	if err != nil {
		return nil, err
	}
	if err := copyCached(ctx, binaries, dataDir); err != nil {
		return nil, err
	}
	cluster, err := embeddedpg.Start(ctx, embeddedpg.Config{DataDir: dataDir, BinDir: binaries.Dir, Settings: volatile})
	if err != nil {
		return nil, err
	}
	stop := func() error {
		stopAtOnce(cluster)
		return removeCluster(dataDir)
	}
	return &server{url: cluster.URL(), stop: stop}, nil
}

// stopAtOnce stops a cluster whose data is no longer needed.
func stopAtOnce(cluster *embeddedpg.Cluster) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = cluster.Stop(ctx) // its error is that there was no time for a checkpoint
}

// copyCached makes a data directory with a copy of the cached cluster.
func copyCached(ctx context.Context, binaries embeddedpg.Binaries, dataDir string) error {
	cached, err := cachedCluster(ctx, binaries)
	if err != nil {
		return fmt.Errorf("make the cached cluster: %w", err)
	}
	if err := os.Mkdir(dataDir, 0o711); err != nil {
		return err
	}
	return copyCluster(cached, filepath.Join(dataDir, "cluster"))
}

var notInFileNames = regexp.MustCompile(`[^A-Za-z0-9.]+`)

// cachedCluster returns the directory of a cluster that was made once and shut down cleanly. It is made if it is
// missing; a lock keeps other processes from making it too, and a rename from seeing half of it.
func cachedCluster(ctx context.Context, binaries embeddedpg.Binaries) (string, error) {
	dir, err := cacheDir()
	if err != nil {
		return "", err
	}
	name := "cluster-" + strconv.Itoa(cacheFormat) + "-" + notInFileNames.ReplaceAllString(binaries.Version, "_")
	path := filepath.Join(dir, name)
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	lock, err := lockFile(ctx, path+".lock")
	if err != nil {
		return "", err
	}
	defer lock.Close()
	if _, err := os.Stat(path); err == nil {
		return path, nil // another process was faster
	}
	return path, makeCached(ctx, binaries, path)
}

// cacheDir is in the user's cache or, where the user has none, in the system's temporary directory.
func cacheDir() (string, error) {
	parent, err := os.UserCacheDir()
	if err != nil {
		dir := filepath.Join(os.TempDir(), "fgtest-cache-"+strconv.Itoa(os.Getuid()))
		return dir, ownDir(dir, 0o700)
	}
	dir := filepath.Join(parent, "fencegate", "testenv")
	return dir, os.MkdirAll(dir, 0o700)
}

func makeCached(ctx context.Context, binaries embeddedpg.Binaries, path string) error {
	dataDir, err := scratch.next()
	if err != nil {
		return err
	}
	cluster, err := embeddedpg.Start(ctx, embeddedpg.Config{DataDir: dataDir, BinDir: binaries.Dir})
	if err != nil {
		return err
	}
	if err := cluster.Stop(ctx); err != nil {
		return err
	}
	staging := path + ".new"
	if err := os.RemoveAll(staging); err != nil {
		return err
	}
	if err := copyCluster(filepath.Join(dataDir, "cluster"), staging); err != nil {
		return err
	}
	syscall.Sync() // a crash of the machine must not leave half a copy
	return errors.Join(os.Rename(staging, path), os.RemoveAll(dataDir))
}

// copyCluster copies a cluster that does not run. PostgreSQL demands that others can't enter its directory.
func copyCluster(from, to string) error {
	return errors.Join(os.CopyFS(to, os.DirFS(from)), os.Chmod(to, 0o700)) //nolint:gosec // it is a directory
}
