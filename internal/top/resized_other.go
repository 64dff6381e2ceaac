//go:build !unix

package top

import "os"

// notifyResized does nothing: there is no such signal. The screen is drawn each second, in the terminal's size.
func notifyResized(chan<- os.Signal) {}
