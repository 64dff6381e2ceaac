//go:build unix

package demo

import (
	"fmt"
	"os"
	"syscall"
	"unsafe"
)

// mapNumber maps the first number of a file into memory, and sees what another process writes to it. unmap ends that.
func mapNumber(path string) (number *uint32, unmap func(), err error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	defer file.Close()
	const size = 4
	memory, err := syscall.Mmap(int(file.Fd()), 0, size, syscall.PROT_READ, syscall.MAP_SHARED)
	if err != nil {
		return nil, nil, fmt.Errorf("map %s: %w", path, err)
	}
	number = (*uint32)(unsafe.Pointer(unsafe.SliceData(memory))) //nolint:gosec // another process changes it
	return number, func() { _ = syscall.Munmap(memory) }, nil
}
