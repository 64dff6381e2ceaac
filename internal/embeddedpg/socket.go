package embeddedpg

import (
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
)

// superuser owns the cluster; database is what URL names.
const (
	superuser = "fencegate"
	database  = "fencegate"
)

// socketName is the file that PostgreSQL makes in the socket directory.
var socketName = ".s.PGSQL." + strconv.Itoa(port)

// socketPathMax is the longest path of a socket, in bytes: sun_path without its closing NUL.
func socketPathMax(goos string) int {
	if goos == "linux" {
		return 107
	}
	return 103
}

// fitsSocket reports whether a directory can hold a socket that clients can name: not too long, and without the comma
// that separates hosts in a connection URL.
func fitsSocket(dir string) bool {
	return len(filepath.Join(dir, socketName)) <= socketPathMax(runtime.GOOS) && !strings.Contains(dir, ",")
}

// openSocketDir makes a directory that only the account can enter: run in the data directory, or where that does not
// fit a private one in the system's temporary directory, which run then links to.
func openSocketDir(l layout, account *account) (string, error) {
	if err := closeSocketDir(l); err != nil {
		return "", err
	}
	if fitsSocket(l.run()) {
		if err := os.Mkdir(l.run(), 0o700); err != nil {
			return "", err
		}
		return l.run(), account.give(l.run())
	}
	var failures []error
	for _, parent := range []string{os.TempDir(), "/tmp"} {
		dir, err := privateSocketDir(parent, account)
		if err == nil {
			return dir, os.Symlink(dir, l.run())
		}
		failures = append(failures, err)
	}
	return "", fmt.Errorf("no directory for the socket, %s being too long or holding a comma: %w", l.run(),
		errors.Join(failures...))
}

// privateSocketDir makes a directory of a new name.
func privateSocketDir(parent string, account *account) (string, error) {
	dir, err := os.MkdirTemp(parent, "fencegate-")
	if err != nil {
		return "", err
	}
	err = account.give(dir)
	if err == nil && !fitsSocket(dir) {
		err = fmt.Errorf("%s is too long, or holds a comma", dir)
	}
	if err == nil {
		err = account.checkReach(dir, "set TMPDIR to another directory")
	}
	if err != nil {
		return "", errors.Join(err, os.Remove(dir))
	}
	return dir, nil
}

// closeSocketDir removes the socket directory, also one that a killed owner left behind.
func closeSocketDir(l layout) error {
	target, err := os.Readlink(l.run())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil { // not a link
		return os.RemoveAll(l.run())
	}
	// Only what PostgreSQL puts there is removed: in a shared directory, the name may be another's by now.
	for _, name := range []string{socketName, socketName + ".lock", ""} {
		_ = os.Remove(filepath.Join(target, name))
	}
	return os.Remove(l.run())
}

// socketURL is a connection URL that both pgx and psql understand. It leaves nothing to PG* variables.
func socketURL(socketDir, database string) string {
	query := url.Values{
		"host":    {socketDir},
		"port":    {strconv.Itoa(port)},
		"sslmode": {"disable"},
	}
	// libpq reads a plus sign as itself, not as a space.
	encoded := strings.ReplaceAll(query.Encode(), "+", "%20")
	return (&url.URL{Scheme: "postgres", User: url.User(superuser), Path: "/" + database, RawQuery: encoded}).String()
}
