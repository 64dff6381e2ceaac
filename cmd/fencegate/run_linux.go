package main

import (
	"runtime"
	"syscall"
)

// groupAttributes make a process group whose leader is killed if this process is: its lease would not be renewed.
func groupAttributes() *syscall.SysProcAttr {
	// The signal comes when the thread ends that started it: so that must not.
	runtime.LockOSThread()
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
