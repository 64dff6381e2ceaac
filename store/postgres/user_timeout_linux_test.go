package postgres

import (
	"net"
	"testing"

	"golang.org/x/sys/unix"
)

// TestTCPTimeouts checks that the kernel ends a connection whose network is gone.
func TestTCPTimeouts(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	c := &connections{open: map[*connection]struct{}{}}
	conn, err := c.dial(t.Context(), "tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	socket, err := conn.(*connection).Conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	for name, option := range map[string]struct{ level, name, want int }{
		"TCP_USER_TIMEOUT": {unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, 10_000},
		"SO_KEEPALIVE":     {unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1},
		"TCP_KEEPIDLE":     {unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, 5},
	} {
		err := socket.Control(func(fd uintptr) {
			if got, err := unix.GetsockoptInt(int(fd), option.level, option.name); err != nil || got != option.want {
				t.Errorf("%s is %d (%v), want %d", name, got, err, option.want)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := conn.Close(); err != nil || len(c.open) != 0 {
		t.Errorf("after the end %d connections are open (%v), want none", len(c.open), err)
	}
}
