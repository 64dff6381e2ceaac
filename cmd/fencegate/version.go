package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// The linker sets these in releases: -ldflags "-X main.version=v1.2.3 -X main.commit=0a1b2c3". Without them they are
// what the Go toolchain has recorded.
var version, commit string

type versionCmd struct{ outputFlag }

// Run shows the version.
func (versionCmd) Run(con *console) error {
	built := thisBuild()
	revision := built.Commit
	if built.Dirty {
		revision += " (dirty)"
	}
	return con.show(built, []field{
		{"fencegate", built.Version}, {"commit", revision}, {"go", built.Go + " " + built.Platform},
	})
}

// build is what is known of this program's source.
type build struct {
	Version string `json:"version"`
	// Commit is empty where it was not recorded, such as in a container's build.
	Commit string `json:"commit"`
	// Dirty says that the source had changes that are not in Commit.
	Dirty    bool   `json:"dirty"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func thisBuild() build {
	info, _ := debug.ReadBuildInfo()
	return buildOf(version, commit, info)
}

// buildOf prefers what the linker set. info may be nil.
func buildOf(version, commit string, info *debug.BuildInfo) build {
	b := build{Version: version, Commit: commit, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if info != nil {
		if b.Version == "" {
			b.Version = info.Main.Version
		}
		for _, setting := range info.Settings {
			switch {
			case setting.Key == "vcs.revision" && commit == "":
				b.Commit = setting.Value
			case setting.Key == "vcs.modified" && commit == "":
				b.Dirty = setting.Value == "true"
			}
		}
	}
	if b.Version == "" {
		b.Version = "unknown"
	}
	return b
}

// line is the answer of --version.
func (b build) line() string {
	revision := ""
	switch {
	case b.Commit != "" && b.Dirty:
		revision = "commit " + b.Commit + " (dirty), "
	case b.Commit != "":
		revision = "commit " + b.Commit + ", "
	}
	return fmt.Sprintf("fencegate %s (%s%s %s)", b.Version, revision, b.Go, b.Platform)
}

// programVersion is the release, or what the build knows of its source.
func programVersion() string { return thisBuild().Version }
