package postgres

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/fencegate/fencegate/internal/test/testenv/await"
)

// InstallExtension restarts the cluster with programs of its own, which find the files of an extension. Those of the
// machine may belong to root, and to all tests. It copies the programs that PostgreSQL runs, since they find their files
// by where they are, and links all else.
func (c *Cluster) InstallExtension(files map[string]string) {
	c.t.Helper()
	place := func(name string) string {
		return query[string](c, "select setting from pg_config() where name = $1", name)
	}
	programs, share := place("BINDIR"), place("SHAREDIR")
	libraries := []string{place("LIBDIR"), place("PKGLIBDIR")} // the first may have the second in it
	root := programs
	for !strings.HasPrefix(share, root+"/") {
		root = filepath.Dir(root)
	}
	prefix, err := scratch.next()
	check(c.t, err)
	c.t.Cleanup(func() { check(c.t, os.RemoveAll(prefix)) })
	copied := func(dir string) string { return prefix + strings.TrimPrefix(dir, root) }
	mkdir := func(dir string) { check(c.t, os.MkdirAll(dir, 0o755)) }

	mkdir(copied(programs))
	for _, name := range []string{"postgres", "initdb"} {
		text, err := os.ReadFile(filepath.Join(programs, name))
		check(c.t, err)
		check(c.t, os.WriteFile(filepath.Join(copied(programs), name), text, 0o755)) //nolint:gosec // it is a program
	}
	for _, dir := range libraries {
		if _, err := os.Stat(copied(dir)); err != nil && strings.HasPrefix(dir, root+"/") {
			mkdir(filepath.Dir(copied(dir)))
			check(c.t, os.Symlink(dir, copied(dir)))
		}
	}
	link := func(from, to string) {
		mkdir(to)
		entries, err := os.ReadDir(from)
		check(c.t, err)
		for _, entry := range entries {
			if entry.Name() != "extension" {
				check(c.t, os.Symlink(filepath.Join(from, entry.Name()), filepath.Join(to, entry.Name())))
			}
		}
	}
	link(share, copied(share))
	extensions := filepath.Join(copied(share), "extension")
	link(filepath.Join(share, "extension"), extensions)
	for name, text := range files {
		check(c.t, os.WriteFile(filepath.Join(extensions, name), []byte(text), 0o644)) //nolint:gosec // for PostgreSQL's user
	}
	check(c.t, c.running.Stop(await.Context(c.t)))
	c.binDir = copied(programs)
	c.start()
}
