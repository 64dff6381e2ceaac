//go:build unix

package pgtest

import (
	"io/fs"
	"os"
	"syscall"
)

// owned reports whether a file belongs to the user that runs the tests.
func owned(info fs.FileInfo) bool { return info.Sys().(*syscall.Stat_t).Uid == uint32(os.Geteuid()) }
