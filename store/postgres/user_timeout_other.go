//go:build !linux

package postgres

import "syscall"

// setUserTimeout does nothing: only Linux has TCP_USER_TIMEOUT. Keep-alives find a lost server later.
func setUserTimeout(string, string, syscall.RawConn) error { return nil }
