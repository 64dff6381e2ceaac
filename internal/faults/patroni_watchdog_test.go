//go:build linux

package faults

import (
	"bufio"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// startWatchdog makes the watchdog of a node: a named pipe, which Patroni's own test driver writes to as to
// /dev/watchdog. Where that resets the machine, this kills all processes of the node.
func startWatchdog(t *testing.T, node *patroniNode) (device string) {
	t.Helper()
	device = filepath.Join(node.dir, "watchdog")
	check(t, syscall.Mkfifo(device, 0o600))
	pipe, err := os.OpenFile(device, os.O_RDWR, 0)
	check(t, err)
	t.Cleanup(func() { check(t, pipe.Close()) })
	written := make(chan byte)
	go func() { // until the pipe is closed
		defer close(written)
		from := bufio.NewReader(pipe)
		for {
			sign, err := from.ReadByte()
			if err != nil {
				return
			}
			if sign == 'C' { // of "Ctimeout=15\n"
				line, _ := from.ReadString('\n')
				seconds, _ := strconv.Atoi(strings.TrimSpace(strings.TrimPrefix(line, "timeout=")))
				sign = byte(seconds)
			}
			written <- sign
		}
	}()
	go node.guard(t, written)
	return device
}

// guard kills the node if nothing is written within the timeout that was written. '1' keeps it alive, 'V' disarms.
func (n *patroniNode) guard(t *testing.T, written <-chan byte) {
	timeout := time.Minute
	timer := time.NewTimer(timeout)
	timer.Stop()
	for {
		select {
		case sign, open := <-written:
			switch {
			case !open:
				timer.Stop()
				return
			case sign == 'V':
				timer.Stop()
				continue
			case sign != '1':
				timeout = time.Duration(sign) * time.Second
			}
			timer.Reset(timeout)
		case <-timer.C:
			n.signal(t, syscall.SIGSTOP, true)
			n.signal(t, syscall.SIGKILL, true)
		}
	}
}
