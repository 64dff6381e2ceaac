package postgres

import (
	"errors"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// userTimeoutMS is how long what was sent may stay unacknowledged before the kernel ends a connection.
const userTimeoutMS = 10_000

// setUserTimeout sets TCP_USER_TIMEOUT on a socket before it connects.
func setUserTimeout(network, _ string, socket syscall.RawConn) error {
	if !strings.HasPrefix(network, "tcp") {
		return nil
	}
	var failed error
	err := socket.Control(func(fd uintptr) {
		failed = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, userTimeoutMS)
	})
	return errors.Join(err, failed)
}
