package endpoint

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// isHungUp reports whether the peer has closed its half of the connection, or reset it, whatever it has sent before. It
// does not wait.
func isHungUp(socket syscall.RawConn) bool {
	var events int16
	err := socket.Control(func(fd uintptr) {
		state := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
		if _, err := unix.Poll(state, 0); err == nil {
			events = state[0].Revents
		}
	})
	return err != nil || events&(unix.POLLRDHUP|unix.POLLHUP|unix.POLLERR) != 0
}
