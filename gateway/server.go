package gateway

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"github.com/fencegate/fencegate/gateway/endpoint"
	"github.com/fencegate/fencegate/lockclient/api"
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

// adds itself to http.DefaultServeMux, which nothing serves

// NewProfiles returns a handler of the profiles of this process, below /debug/pprof/, for a listener of its own. It has
// no authentication. It answers requests for allowedHosts only, and none that a page of another site has sent. It does
// not show the command line, which may have a password. It returns ErrInvalidConfig.
func NewProfiles(allowedHosts []string) (http.Handler, error) {
	allowed, err := parseHosts(allowedHosts)
	if err != nil {
		return nil, fmt.Errorf("%w: --allowed-hosts: %w", ErrInvalidConfig, err)
	}
	profiles := http.NewServeMux()
	profiles.HandleFunc("GET /debug/pprof/", pprof.Index) // and all that it lists: heap, allocs, goroutine, …
	profiles.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	profiles.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if allowed != nil && !allowed.admit(r.Host) || endpoint.FromElsewhere(r) {
			http.Error(w, string(api.CodeUnknownHost), http.StatusMisdirectedRequest)
			return
		}
		profiles.ServeHTTP(w, r)
	}), nil
}

// certificateInterval is how often the files of certificates are read again.
const certificateInterval = 2 * time.Second

// Certificates has the certificate of the server, and the authority of its clients, as they are in files. A renewed
// file holds for connections that are opened after it was read; open connections stay.
type Certificates struct {
	paths    [3]string // certificate, key, authority of clients or ""
	interval time.Duration
	read     [3][]byte // what was read last, in use or not
	current  atomic.Pointer[tls.Config]
	clients  atomic.Pointer[[]*x509.Certificate] // the authorities of clients
}

// LoadCertificates reads the files, which are PEM. clientCA may be "": then clients are asked for no certificate.
// Otherwise a client may show one, and is refused if the authority has not signed it, or if it has expired.
func LoadCertificates(certificate, key, clientCA string) (*Certificates, error) {
	c := &Certificates{paths: [3]string{certificate, key, clientCA}, interval: certificateInterval}
	if _, err := c.load(); err != nil {
		return nil, err
	}
	return c, nil
}

// config returns the configuration of a listener. It uses what the files had when a connection was opened.
func (c *Certificates) config() *tls.Config {
	return &tls.Config{
		MinVersion:         tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return c.current.Load(), nil },
	}
}

// expiry returns when the certificate in use expires; the zero time: there is none.
func (c *Certificates) expiry() time.Time {
	if c == nil {
		return time.Time{}
	}
	return c.current.Load().Certificates[0].Leaf.NotAfter
}

// load reads the files, and uses them if they have changed.
func (c *Certificates) load() (changed bool, err error) {
	var read [3][]byte
	for i, path := range c.paths {
		if path == "" {
			continue
		}
		if read[i], err = os.ReadFile(path); err != nil {
			return false, err
		}
		changed = changed || !bytes.Equal(read[i], c.read[i])
	}
	if !changed {
		return false, nil
	}
	c.read = read
	pair, err := tls.X509KeyPair(read[0], read[1])
	if err != nil {
		return false, fmt.Errorf("the certificate in %s and the key in %s: %w", c.paths[0], c.paths[1], err)
	}
	config := &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}, Certificates: []tls.Certificate{pair},
		// A resumed session would skip the check of the client's certificate by the current authority.
		SessionTicketsDisabled: true,
	}
	if c.paths[2] != "" {
		authorities := parseAuthorities(read[2])
		if len(authorities) == 0 {
			return false, errors.New(c.paths[2] + " has no certificate in PEM")
		}
		config.ClientAuth, config.ClientCAs = tls.VerifyClientCertIfGiven, x509.NewCertPool()
		for _, authority := range authorities {
			config.ClientCAs.AddCert(authority)
		}
		c.clients.Store(&authorities)
	}
	c.current.Store(config)
	return true, nil
}

// Trusts reports whether an authority is one of clients, as the file is now. Connections may have been opened before.
func (c *Certificates) Trusts(authority *x509.Certificate) bool {
	trusted := c.clients.Load()
	return trusted != nil && slices.ContainsFunc(*trusted, authority.Equal)
}

// parseAuthorities returns the certificates in a PEM file, and leaves out what is none, as x509.CertPool does.
func parseAuthorities(text []byte) (authorities []*x509.Certificate) {
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			return authorities
		}
		if certificate, err := x509.ParseCertificate(block.Bytes); err == nil && block.Type == "CERTIFICATE" {
			authorities = append(authorities, certificate)
		}
	}
}

// follow uses renewed files until ctx ends. Files that can't be used leave the former ones in use.
func (c *Certificates) follow(ctx context.Context, logger *slog.Logger) {
	tick := time.NewTicker(c.interval)
	defer tick.Stop()
	failed := ""
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		changed, err := c.load()
		switch {
		case err != nil && err.Error() != failed:
			failed = err.Error()
			logger.Warn("certificates not reloaded; the former ones are used", "error", err)
		case changed:
			failed = ""
			logger.Info("certificates reloaded", "not_after", c.expiry())
		}
	}
}
