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
	"os"
	"slices"
	"sync/atomic"
	"time"
)

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
