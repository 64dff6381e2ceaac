package process

import "os"

// TempParent returns a directory for temporary ones that outlive processes but not the machine. It is in memory where
// the system offers that with room to spare: making and dropping a database creates and removes hundreds of files, which
// takes some file systems longer than all the rest of a test. TMPDIR, where it is set, is obeyed instead.
func TempParent() string {
	if os.Getenv("TMPDIR") == "" && inMemory(sharedMemory) {
		return sharedMemory
	}
	return os.TempDir()
}

// sharedMemory is where Linux has a file system in memory that every user may use.
const sharedMemory = "/dev/shm"
