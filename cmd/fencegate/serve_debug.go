package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/fencegate/fencegate/gateway"
)

// profileHeaderTimeout is the time for the header of a request for a profile.
const profileHeaderTimeout = 10 * time.Second

// serveProfiles serves profiles on --debug-listen, if it is given, until the returned function is called.
func (c *serveCmd) serveProfiles(ctx context.Context, logger *slog.Logger) (stop func(), err error) {
	if c.DebugListen == "" {
		return func() {}, nil
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", c.DebugListen)
	if err != nil {
		return nil, fmt.Errorf("--debug-listen %s: %w", c.DebugListen, err)
	}
	if !c.InsecureNoAuth && !gateway.IsLoopback(listener.Addr()) {
		return nil, errors.Join(usagef("other machines can reach --debug-listen %s, and profiles need no credential. Listen on "+
			"127.0.0.1, or, if the network keeps others away, give --insecure-no-auth.", listener.Addr()), listener.Close())
	}
	handler, err := gateway.NewProfiles(c.hosts(listener.Addr(), false))
	if err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	server := &http.Server{
		Handler: handler, ReadHeaderTimeout: profileHeaderTimeout, ErrorLog: slog.NewLogLogger(logger.Handler(), slog.LevelDebug),
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			logger.Error("no more profiles", "error", err)
		}
	}()
	logger.Info("profiles", "listen", listener.Addr().String())
	return func() {
		_ = server.Close() // a profile under way must not delay the end
		<-ended
	}, nil
}
