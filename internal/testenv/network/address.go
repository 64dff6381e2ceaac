package network

import (
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"testing"
)

// tried counts the ports that FreeAddress has tried. Each is tried once: two tests of a process never get the same one.
var tried atomic.Int32

// first differs between processes that run at the same time, by more than the ports that most of them try.
var first = int32(20000 + os.Getpid()*97%10000)

// reserved are the UDP ports of the addresses, which this process keeps until it ends: so another process that looks for
// an address passes them over, also while the program under test has not started yet. Those programs use TCP.
var reserved sync.Map

// FreeAddress is for programs under test that can't choose a free port themselves, or that must keep theirs over a
// restart. It returns an unused address below the system's ephemeral ports, which neither a connection nor another
// listener is given by chance.
func FreeAddress(t testing.TB) string {
	t.Helper()
	for range 100 {
		address := fmt.Sprintf("127.0.0.1:%d", first+tried.Add(1))
		reservation, err := new(net.ListenConfig).ListenPacket(t.Context(), "udp", address)
		if err != nil {
			continue
		}
		if listener, err := net.Listen("tcp", address); err == nil {
			_ = listener.Close()
			reserved.Store(address, reservation)
			return address
		}
		_ = reservation.Close()
	}
	t.Fatal("found no free port in 100 attempts")
	return ""
}
