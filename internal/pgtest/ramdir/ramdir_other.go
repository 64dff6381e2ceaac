//go:build !linux

package ramdir

func inMemory(string) bool { return false }
