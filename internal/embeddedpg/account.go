package embeddedpg

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
)

// account is another user that PostgreSQL runs as. A nil account means the gateway's own.
type account struct {
	name     string
	uid, gid uint32
}

// pickAccount returns the user that PostgreSQL runs as: nil, unless euid is root's.
func pickAccount(euid int, lookup func(name string) (*user.User, error)) (*account, error) {
	if euid != 0 {
		return nil, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		found, err := lookup(name)
		if err != nil {
			continue
		}
		uid, uidErr := parseID(found.Uid)
		gid, gidErr := parseID(found.Gid)
		if err := errors.Join(uidErr, gidErr); err != nil {
			return nil, fmt.Errorf("user %s: %w", name, err)
		}
		if uid != 0 {
			return &account{name: name, uid: uid, gid: gid}, nil
		}
	}
	return nil, errors.New("PostgreSQL refuses to run as root, and there is neither a user postgres nor a user nobody; " +
		"make one with `useradd --system postgres`, or run fencegate as an ordinary user")
}

// parseID reads a numeric id. Some systems write the id of nobody as -2.
func parseID(text string) (uint32, error) {
	id, err := strconv.ParseInt(text, 10, 64)
	return uint32(id), err
}

// reachScript enters each of its arguments and prints the first that it can't.
const reachScript = `for dir do cd "$dir" 2>/dev/null || { printf %s "$dir"; exit 1; }; done`

// checkReach returns an error that names the first directory on the way to dir that the account can't enter, and the
// fix. It tries as that user, since mode bits alone don't show it (access control lists, read-only mounts).
func (a *account) checkReach(dir, otherwise string) error {
	if a == nil {
		return nil
	}
	way := []string{dir}
	for parent := filepath.Dir(dir); parent != way[0]; parent = filepath.Dir(parent) {
		way = slices.Insert(way, 0, parent)
	}
	args := append([]string{"-c", reachScript, "sh"}, way...)
	blocked, err := a.command(context.Background(), "/bin/sh", args...).Output()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &exit) && len(blocked) > 0:
		return fmt.Errorf("PostgreSQL refuses root and runs as the user %s, which can't enter %s; run `chmod o+x %s`, or %s",
			a.name, blocked, blocked, otherwise)
	default:
		return fmt.Errorf("run a program as the user %s: %w", a.name, err)
	}
}

// give makes the account the owner of path alone.
func (a *account) give(path string) error {
	if a == nil {
		return nil
	}
	return os.Lchown(path, int(a.uid), int(a.gid))
}

// giveTree makes the account the owner of a directory and all that is in it, if it is not yet. The directory itself
// changes hands last, so that a change that was cut short is taken up again. Symbolic links are not followed.
func (a *account) giveTree(dir string) error {
	if a == nil {
		return nil
	}
	owner, err := ownerOf(dir)
	if err != nil || owner == a.uid {
		return err
	}
	err = filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		return a.give(path)
	})
	if err != nil {
		return err
	}
	return a.give(dir)
}

// command returns a program to run under the account, in a session of its own: out of reach of the terminal's signals.
func (a *account) command(ctx context.Context, program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = "/"
	cmd.Env = childEnv(os.Environ())
	cmd.SysProcAttr = a.newSession()
	return cmd
}

// childEnv is what PostgreSQL's programs see of the gateway's environment: no PG* variable, which would change ports,
// data directories and options behind our back, and one locale, so that messages are the same everywhere.
func childEnv(environ []string) []string {
	kept := slices.DeleteFunc(slices.Clone(environ), func(entry string) bool {
		name, _, _ := strings.Cut(entry, "=")
		return strings.HasPrefix(name, "PG") || strings.HasPrefix(name, "LC_") || name == "LANG" || name == "LANGUAGE"
	})
	return append(kept, "LC_ALL=C")
}

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
