// Package freeport finds addresses for programs under test that can't choose a free port themselves, or that must keep
// theirs over a restart.
package freeport

import (
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"testing"
)

// tried counts the ports that Address has tried. Each is tried once: two tests of a process never get the same one, and
// those of several processes hardly ever.
var tried atomic.Int32

var first = int32(20000 + os.Getpid()%10000)

// Address returns an unused address below the system's ephemeral ports, which neither a connection nor another listener
// is given by chance.
func Address(t testing.TB) string {
	t.Helper()
	for range 100 {
		address := fmt.Sprintf("127.0.0.1:%d", first+tried.Add(1))
		if listener, err := net.Listen("tcp", address); err == nil {
			_ = listener.Close()
			return address
		}
	}
	t.Fatal("found no free port in 100 attempts")
	return ""
}
