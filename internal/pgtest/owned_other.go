//go:build !unix

package pgtest

import "io/fs"

// owned is true where every user has a temporary directory of its own.
func owned(fs.FileInfo) bool { return true }
