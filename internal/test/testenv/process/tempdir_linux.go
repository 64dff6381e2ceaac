package process

import (
	"os"
	"syscall"
)

const (
	tmpfsMagic = 0x01021994
	// roomMin is the free space in bytes that is needed. A cluster takes some 60 MB; containers often have 64 MB in
	// all.
	roomMin = 2 << 30
	// everyone are the permissions to make and enter directories.
	everyone = 0o003
)

func inMemory(dir string) bool {
	info, err := os.Stat(dir)
	if err != nil || info.Mode().Perm()&everyone != everyone {
		return false
	}
	var fs syscall.Statfs_t
	if err := syscall.Statfs(dir, &fs); err != nil {
		return false
	}
	return int64(fs.Type) == tmpfsMagic && int64(fs.Bavail)*int64(fs.Bsize) >= roomMin
}
