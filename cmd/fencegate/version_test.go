package main

import (
	"runtime/debug"
	"strings"
	"testing"
)

// A release has the version and commit that the linker set. Other builds have those that the Go toolchain recorded,
// with a mark for changes that are not committed.
func TestBuildOf(t *testing.T) {
	recorded := &debug.BuildInfo{
		Main: debug.Module{Version: "v0.9.1"},
		Settings: []debug.BuildSetting{
			{Key: "vcs.revision", Value: "0a1b2c3"}, {Key: "vcs.modified", Value: "true"}, {Key: "CGO_ENABLED", Value: "0"},
		},
	}
	for want, got := range map[string]build{
		"fencegate v1.2.3 (commit f00, ":           buildOf("v1.2.3", "f00", recorded),
		"fencegate v1.2.3 (commit 0a1b2c3 (dirty)": buildOf("v1.2.3", "", recorded),
		"fencegate v0.9.1 (commit 0a1b2c3 (dirty)": buildOf("", "", recorded),
		"fencegate unknown (go1.":                  buildOf("", "", nil),
	} {
		if !strings.HasPrefix(got.line(), want) || strings.Contains(got.line(), "f00 (dirty)") {
			t.Errorf("%+v is shown as %q, want %q", got, got.line(), want)
		}
	}
}

// The command and the flag show the same version, and no variable of the environment shows it unasked.
func TestVersion(t *testing.T) {
	t.Setenv("FENCEGATE_VERSION", "v1")
	s := shell{t, ""}
	got := fields(s.must("version"))
	if got["fencegate"] != programVersion() || !strings.HasPrefix(got["go"], "go1.") {
		t.Errorf("version printed %q", got)
	}
	var document build
	parseLine(t, s.must("version", "-o", "json"), &document)
	if document != thisBuild() {
		t.Errorf("version printed %+v, want %+v", document, thisBuild())
	}
	for _, args := range [][]string{{"--version"}, {"lock", "ls", "--version"}} {
		if out := s.must(args...); out != thisBuild().line()+"\n" {
			t.Errorf("%q printed %q, want the version", args, out)
		}
	}
}
