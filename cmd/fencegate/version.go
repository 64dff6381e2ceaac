package main

import (
	"runtime"
	"runtime/debug"
)

// release is set by the linker: -ldflags "-X main.release=v1.2.3".
var release = ""

type versionCmd struct{}

// Run shows the version.
func (versionCmd) Run(con *console) error {
	return con.show(nil, []field{
		{"fencegate", version()},
		{"go", runtime.Version() + " " + runtime.GOOS + "/" + runtime.GOARCH},
	})
}

// version is the release, or what the build knows of its source.
func version() string {
	if release != "" {
		return release
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "unknown"
}
