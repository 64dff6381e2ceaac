package embeddedpg

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
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
