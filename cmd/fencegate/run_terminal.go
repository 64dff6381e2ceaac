//go:build unix

package main

import (
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// terminal is the controlling terminal of this process. Its foreground process group may read from it, and gets the
// signals of the keys (INT, QUIT, TSTP). A nil terminal stands for none.
type terminal struct {
	file *os.File
	own  int // this process's group
}

// terminalOf returns nil if the file is no terminal, or if this process is not in its foreground.
func terminalOf(file *os.File) *terminal {
	t := &terminal{file: file, own: unix.Getpgrp()}
	if t.foreground() != t.own {
		return nil
	}
	return t
}

// foreground is the process group that has the terminal; 0 where there is none.
func (t *terminal) foreground() int {
	group, err := unix.IoctlGetInt(int(t.file.Fd()), unix.TIOCGPGRP)
	if err != nil {
		return 0
	}
	return group
}

// give puts a group into the foreground, if this process is there.
func (t *terminal) give(group int) {
	if t != nil && t.foreground() == t.own {
		_ = unix.IoctlSetPointerInt(int(t.file.Fd()), unix.TIOCSPGRP, group)
	}
}

// take puts this process's group into the foreground again. From the background that stops a process, unless it
// ignores SIGTTOU.
func (t *terminal) take() {
	if t == nil {
		return
	}
	signal.Ignore(syscall.SIGTTOU)
	_ = unix.IoctlSetPointerInt(int(t.file.Fd()), unix.TIOCSPGRP, t.own)
}
