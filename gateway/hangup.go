package gateway

import (
	"context"
	"net"
	"net/http"
	"syscall"
	"time"
)

// hangUpInterval is how often the connection of a client that waits is checked.
const hangUpInterval = time.Second

type connectionKey struct{}

// withConnection is the ConnContext of the server: attended finds the connection of a request by it.
func withConnection(ctx context.Context, connection net.Conn) context.Context {
	return context.WithValue(ctx, connectionKey{}, connection)
}

// watchHangUp calls hungUp when the client has closed the connection of a request over HTTP/1.1, or its half of it. It
// returns when ctx ends.
//
// net/http reads one byte ahead while a handler runs, so it notices the end of a connection, but not an end after
// another byte: the next request of a client that pipelines, or an empty line. The gateway can't read instead of
// net/http without taking over the connection. So it asks the kernel for the state of the socket, which reads nothing.
// A half-closed connection counts as closed, as it does for net/http: a FIN does not show which of the two it is. Over
// HTTP/2 the connection is read all the time, so nothing is to be done.
func watchHangUp(ctx context.Context, r *http.Request, interval time.Duration, hungUp func()) {
	connection, ok := r.Context().Value(connectionKey{}).(syscall.Conn)
	if !ok || r.ProtoMajor != 1 {
		return
	}
	socket, err := connection.SyscallConn()
	if err != nil {
		return
	}
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if isHungUp(socket) {
			hungUp()
			return
		}
	}
}
