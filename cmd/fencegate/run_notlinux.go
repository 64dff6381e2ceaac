//go:build unix && !linux

package main

import "syscall"

// groupAttributes make a process group.
func groupAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
