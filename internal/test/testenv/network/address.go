package network

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"testing"
)

// tried counts the ports that FindAddress has tried. Each is tried once: two tests of a process never get the same one.
var tried atomic.Int32

// first differs between processes that run at the same time, by more than the ports that most of them try.
var first = int32(20000 + os.Getpid()*97%10000)

// reserved are the UDP ports of the addresses, which this process keeps until it ends: so another process that looks for
// an address passes them over, also while the program under test has not started yet. Those programs use TCP.
var reserved sync.Map

// FreeAddress is FindAddress for a test.
func FreeAddress(t testing.TB) string {
	t.Helper()
	address, err := FindAddress(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return address
}

// FindAddress is for programs that can't choose a free port themselves, or that must keep theirs over a restart. It
// returns an unused address below the system's ephemeral ports, which neither a connection nor another listener is given
// by chance.
func FindAddress(ctx context.Context) (string, error) {
	for range 100 {
		address := fmt.Sprintf("127.0.0.1:%d", first+tried.Add(1))
		reservation, err := new(net.ListenConfig).ListenPacket(ctx, "udp", address)
		if err != nil {
			continue
		}
		if listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address); err == nil {
			_ = listener.Close()
			reserved.Store(address, reservation)
			return address, nil
		}
		_ = reservation.Close()
	}
	return "", errors.Join(errors.New("found no free port in 100 attempts"), ctx.Err())
}
