package gateway

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/fencegate/fencegate/gateway/endpoint"
)

const (
	headerTimeout = 10 * time.Second
	idleTimeout   = 2 * time.Minute
	writeTimeout  = 2 * time.Minute // an acquire that waits longer extends it
	streamsOfOne  = 100             // requests at the same time on one connection of HTTP/2; RFC 9113 advises against fewer
	pingInterval  = 30 * time.Second
	pingTimeout   = 15 * time.Second
	takeTimeout   = 15 * time.Second // for a client of HTTP/2 to take any byte that is sent to it
	shutdownAgain = 500 * time.Millisecond
	eventTimeout  = 10 * time.Second // for a client to take one event; a stream may last for ever
)

// Serve answers HTTP/1.1 and HTTP/2 on the listener, by TLS if the gateway has Certificates, until ctx ends. Then, for
// the DrainDelay, it answers all requests, but is not ready any more, and each answer ends its connection. The time since
// the begin of a drain counts. After that it refuses acquires that wait, ends event streams, takes no new requests,
// finishes those under way, and returns nil. If all of this takes longer than the ShutdownTimeout, it cuts them off and
// returns an error.
func (g *Gateway) Serve(ctx context.Context, listener net.Listener) error {
	server := g.newServer()
	serve := func() error { return server.Serve(listener) }
	if certificates := g.config.Certificates; certificates != nil {
		server.TLSConfig = certificates.config()
		serve = func() error { return server.ServeTLS(listener, "", "") }
		following, stop := context.WithCancel(context.WithoutCancel(ctx))
		defer stop()
		go certificates.follow(following, g.Logger)
	} else {
		server.Protocols.SetUnencryptedHTTP2(true)
	}

	ended := make(chan error, 1)
	go func() { ended <- serve() }()
	select {
	case err := <-ended:
		return fmt.Errorf("serve HTTP: %w", err)
	case <-ctx.Done():
	}

	deadline, cancel := context.WithTimeout(context.WithoutCancel(ctx), g.config.ShutdownTimeout)
	defer cancel()
	staying := g.DrainToEnd()
	g.Logger.Info("draining", "delay", g.config.DrainDelay)
	select {
	case err := <-ended:
		return fmt.Errorf("serve HTTP: %w", err)
	case <-staying.Done():
	}
	g.Drain()
	err := shutDown(deadline, server)
	if err != nil {
		// Connections first: work that is cut off must not answer before they end.
		closeErr := server.Close()
		err = fmt.Errorf("requests were still under way after %s: %w",
			g.config.ShutdownTimeout, errors.Join(err, closeErr))
	}
	g.CutOff() // what goes on without a client must not delay the end
	g.overviews.Wait()
	g.rejections.Wait()
	if served := <-ended; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}

// newServer returns a server with its bounds: what one connection may send, and how long it may take.
func (g *Gateway) newServer() *http.Server {
	server := &http.Server{
		Handler:           g.handler, // without setBodyDeadline: ReadTimeout does the same
		ReadHeaderTimeout: g.headerTimeout,
		ReadTimeout:       g.BodyTimeout,
		MaxHeaderBytes:    endpoint.HeaderBytes,
		IdleTimeout:       idleTimeout,
		WriteTimeout:      g.AnswerTimeout,
		ConnContext:       g.Connections.Context,
		ConnState:         g.Connections.Changed,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: streamsOfOne, SendPingTimeout: pingInterval, PingTimeout: pingTimeout,
			WriteByteTimeout: takeTimeout,
		},
		ErrorLog:  endpoint.ServerLog(g.Logger),
		Protocols: new(http.Protocols),
	}
	server.Protocols.SetHTTP1(true)
	server.Protocols.SetHTTP2(true)
	return server
}

// shutDown ends the server after everything under way has been answered. Server.Shutdown requests the end of HTTP/2
// connections only once, at its beginning. It would miss a connection that was accepted before, but whose first bytes
// arrive after that, and wait for it. So shutDown calls it repeatedly.
func shutDown(ctx context.Context, server *http.Server) error {
	for {
		again, cancel := context.WithTimeout(ctx, shutdownAgain)
		err := server.Shutdown(again)
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil {
			return err
		}
	}
}
