package embeddedpg

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// install makes a directory of programs that say they are a version of PostgreSQL.
func install(t *testing.T, dir, version string) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(mustMkdir(t, dir))
	check(t, err)
	script(t, filepath.Join(dir, "postgres"), fmt.Sprintf("echo 'postgres (PostgreSQL) %s'", version))
	script(t, filepath.Join(dir, "initdb"), "exit 1")
	return dir
}

func mustMkdir(t *testing.T, dir string) string {
	t.Helper()
	check(t, os.MkdirAll(dir, 0o755))
	return dir
}

func script(t *testing.T, path, body string) {
	t.Helper()
	check(t, os.WriteFile(path, []byte("#!/bin/sh\n"+body+"\n"), 0o755))
}

func TestNoBinariesNamesTheWaysOut(t *testing.T) {
	dir := newDataDir(t)
	config, err := Config{DataDir: dir}.check()
	check(t, err)
	_, err = start(context.Background(), config, search{pathList: dir, patterns: []string{dir + "/*/bin"}})
	if !errors.Is(err, ErrNoBinaries) {
		t.Fatalf("got %v", err)
	}
	mentions(t, err, "apt install postgresql", "--database-url", "FENCEGATE_DATABASE_URL", "docker run", dir+"/*/bin")
	mustStart(t, Config{DataDir: dir}) // and nothing stays locked
}

func TestSearchOrder(t *testing.T) {
	root := t.TempDir()
	old := install(t, root+"/old/bin", "13.9")
	onPath := install(t, root+"/path/bin", "15.4 (Debian 15.4-1.pgdg)")
	install(t, root+"/lib/9.6/bin", "9.6.24")
	fourteen := install(t, root+"/lib/14/bin", "14.1")
	seventeen := install(t, root+"/lib/17/bin", "17beta2")
	linked := mustMkdir(t, root+"/links")
	check(t, os.Symlink(onPath+"/postgres", linked+"/postgres"))
	broken := mustMkdir(t, root+"/broken")
	script(t, broken+"/postgres", "echo no initdb beside it")
	patterns := []string{root + "/lib/*/bin"}

	for _, test := range []struct {
		name    string
		path    []string
		want    string
		version string
	}{
		{"links are followed", []string{linked}, onPath, "15.4 (Debian 15.4-1.pgdg)"},
		{"too old on PATH", []string{old, onPath}, onPath, "15.4 (Debian 15.4-1.pgdg)"},
		{"no initdb on PATH", []string{broken, onPath}, onPath, "15.4 (Debian 15.4-1.pgdg)"},
		{"else the newest", nil, seventeen, "17beta2"},
		{"relative entries are ignored", []string{"."}, seventeen, "17beta2"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Chdir(onPath)
			list := strings.Join(test.path, string(os.PathListSeparator))
			found, err := search{pathList: list, patterns: patterns}.find()
			check(t, err)
			if found.Dir != test.want || found.Version != test.version {
				t.Errorf("found %+v, want %s in %s", found, test.version, test.want)
			}
		})
	}

	if found, err := (search{pathList: onPath, patterns: patterns}).findMajor(14, "/data"); err != nil || found.Dir != fourteen {
		t.Errorf("found %+v (%v), want %s", found, err, fourteen)
	}
	_, err := search{pathList: old + string(os.PathListSeparator) + broken}.find()
	mentions(t, err, old+": version 13.9 is older than 14", broken+": no initdb")
}
