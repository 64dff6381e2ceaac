package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
)

// listen opens the listener, unless every machine could use the gateway. A host name may have another address each
// time.
func (c *serveCmd) listen(ctx context.Context) (net.Listener, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", c.Listen)
	if err != nil {
		return nil, fmt.Errorf("--listen %s: %w", c.Listen, err)
	}
	if err := c.checkOpen(listener.Addr(), c.authenticated()); err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	return listener, nil
}

// tryListen reports that the address is taken, or may not be used, before a cluster is made for nothing.
func (c *serveCmd) tryListen(ctx context.Context) error {
	listener, err := c.listen(ctx)
	if err != nil {
		return err
	}
	return listener.Close()
}

// gatewayName is the address that a gateway serves on; where that is every address, the host's name and the port.
func gatewayName(addr net.Addr) string {
	tcp, ok := addr.(*net.TCPAddr)
	if !ok || tcp.IP != nil && !tcp.IP.IsUnspecified() {
		return addr.String()
	}
	host, err := os.Hostname()
	if err != nil {
		return addr.String()
	}
	return net.JoinHostPort(host, strconv.Itoa(tcp.Port))
}
