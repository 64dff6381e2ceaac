package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strconv"
)

// listen opens the listener.
func (c *serveCmd) listen(ctx context.Context) (net.Listener, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", c.Listen)
	if err != nil {
		return nil, fmt.Errorf("--listen %s: %w", c.Listen, err)
	}
	return listener, nil
}

// tryListen reports that the address is taken before a cluster is made for nothing.
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

// warnIfOpen logs a warning if other machines can reach a gateway without authentication.
func (c *serveCmd) warnIfOpen(addr net.Addr, logger *slog.Logger) {
	if tcp, ok := addr.(*net.TCPAddr); ok && !tcp.IP.IsLoopback() && len(c.Auth) == 0 {
		logger.Warn("no authentication: every client that reaches this address can acquire, write and break", "listen",
			addr.String())
	}
}
