//go:build unix

package top

import (
	"os"
	"os/signal"
	"syscall"
)

// notifyResized sends to resized when the size of the terminal changes.
func notifyResized(resized chan<- os.Signal) { signal.Notify(resized, syscall.SIGWINCH) }
