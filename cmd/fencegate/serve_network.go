package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/fencegate/fencegate/gateway"
	"github.com/fencegate/fencegate/internal/devcert"
)

// networkFlags say who can reach the gateway, and how.
type networkFlags struct {
	TLSCert  string `help:"PEM file of the gateway's certificate, and of what lies between it and its authority. With it the gateway speaks TLS only. Renewed files are used within seconds, without a restart." name:"tls-cert" env:"FENCEGATE_TLS_CERT" type:"path" placeholder:"PATH"`
	TLSKey   string `help:"PEM file of the private key of --tls-cert." name:"tls-key" env:"FENCEGATE_TLS_KEY" type:"path" placeholder:"PATH"`
	ClientCA string `help:"PEM file of the authority of clients' certificates. A client that shows another one, or one that has expired, is refused." name:"client-ca" env:"FENCEGATE_CLIENT_CA" type:"path" placeholder:"PATH"`

	AllowedHosts   []string `help:"Names, addresses and networks that requests may have as Host, names and addresses with or without a port; \"*\": every one. Default: loopback addresses and localhost if --listen is one of these, otherwise all addresses, but no names except localhost." env:"FENCEGATE_ALLOWED_HOSTS" placeholder:"HOST,…"`
	InsecureNoAuth bool     `help:"Serve without authentication on an address that other machines can reach: all of them may acquire, write, break leases and set policies." env:"FENCEGATE_INSECURE_NO_AUTH"`
}

// scheme is that of the gateway's URL.
func (f networkFlags) scheme() string {
	if f.TLSCert != "" {
		return "https"
	}
	return "http"
}

// checkOpen refuses a gateway that any machine could use. typed is the --listen of its address.
func (f networkFlags) checkOpen(typed string, listen net.Addr, authenticated bool) error {
	if authenticated || f.InsecureNoAuth || gateway.IsLoopback(listen) {
		return nil
	}
	return usagef("other machines can reach --listen %s, and no authentication is configured: every one of them could "+
		"acquire, write, break leases and set policies. Give --auth keys, so that requests need an API key, or listen on "+
		"127.0.0.1, or, if the network keeps others away, give --insecure-no-auth.", typed)
}

// hosts returns the Hosts that requests may have.
func (f networkFlags) hosts(listen net.Addr, authenticated bool) []string {
	if len(f.AllowedHosts) > 0 {
		return f.AllowedHosts
	}
	return gateway.DefaultHosts(listen, authenticated)
}

// warnIfOpen logs what other machines can do that reach the gateway.
func (f networkFlags) warnIfOpen(listen net.Addr, authenticated bool, logger *slog.Logger) {
	switch {
	case gateway.IsLoopback(listen):
	case !authenticated:
		logger.Warn("no authentication: every client that reaches this address can acquire, write and break",
			"listen", listen.String())
	case f.TLSCert == "":
		logger.Warn("no TLS: credentials pass in the clear, unless a proxy encrypts them", "listen", listen.String())
	}
}

// certificates returns nil where the gateway speaks no TLS.
func (f networkFlags) certificates() (*gateway.Certificates, error) {
	switch {
	case f.TLSCert == "" && f.TLSKey == "" && f.ClientCA == "":
		return nil, nil
	case f.TLSCert == "" || f.TLSKey == "":
		return nil, usagef("TLS needs both --tls-cert and --tls-key")
	}
	certificates, err := gateway.LoadCertificates(f.TLSCert, f.TLSKey, f.ClientCA)
	if err != nil {
		return nil, usagef("--tls-cert, --tls-key, --client-ca: %v", err)
	}
	return certificates, nil
}

// listen opens the listener, unless every machine could use the gateway. A host name may have another address each
// time.
func (c *serveCmd) listen(ctx context.Context) (net.Listener, error) {
	listener, err := listenOn(ctx, "--listen", c.Listen)
	if err != nil {
		return nil, err
	}
	if err := c.checkOpen(c.Listen, listener.Addr(), c.authenticated()); err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	return listener, nil
}

// listenOn opens the listener that a flag names.
func listenOn(ctx context.Context, flag, address string) (net.Listener, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err == nil {
		return listener, nil
	}
	err = fmt.Errorf("%s %s: %w", flag, address, err)
	_, _, noPort := net.SplitHostPort(address)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		err = fmt.Errorf("%w\nEnd the program that listens there, or give %s another port", err, flag)
	case noPort != nil && strings.Trim(address, "0123456789") == "":
		err = fmt.Errorf("%w\nGive an address and a port: %s 127.0.0.1:%s", err, flag, address)
	case noPort != nil:
		withPort := net.JoinHostPort(strings.Trim(address, "[]"), "8080")
		err = fmt.Errorf("%w\nGive an address and a port: %s %s", err, flag, withPort)
	}
	return nil, err
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

// writeReadyFile puts the base URL into the ready file at once and whole.
func (c *serveCmd) writeReadyFile(baseURL string) (remove func(), err error) {
	if c.ReadyFile == "" {
		return func() {}, nil
	}
	temporary := filepath.Join(filepath.Dir(c.ReadyFile), "."+filepath.Base(c.ReadyFile)+".new")
	err = os.WriteFile(temporary, []byte(baseURL+"\n"), 0o644) //nolint:gosec // it is no secret
	if err == nil {
		err = os.Rename(temporary, c.ReadyFile)
	}
	if err != nil {
		return func() {}, fmt.Errorf("--ready-file: %w", err)
	}
	return func() { _ = os.Remove(c.ReadyFile) }, nil
}

// proxyFlag is an address, or a network of them.
type proxyFlag netip.Prefix

// MarshalText writes the flag.
func (p proxyFlag) MarshalText() ([]byte, error) { return netip.Prefix(p).MarshalText() }

// UnmarshalText reads the flag.
func (p *proxyFlag) UnmarshalText(text []byte) error {
	prefix, err := netip.ParsePrefix(string(text))
	if err != nil {
		address, addressErr := netip.ParseAddr(string(text))
		if addressErr != nil {
			return fmt.Errorf("%q is no address (10.0.0.1) and no network (10.0.0.0/8)", text)
		}
		prefix = netip.PrefixFrom(address.Unmap().WithZone(""), address.Unmap().BitLen())
	}
	*p = proxyFlag(prefix.Masked())
	return nil
}

func prefixes(flags []proxyFlag) []netip.Prefix {
	var all []netip.Prefix
	for _, flag := range flags {
		all = append(all, netip.Prefix(flag))
	}
	return all
}

// profileHeaderTimeout is the time for the header of a request for a profile.
const profileHeaderTimeout = 10 * time.Second

// serveProfiles serves profiles on --debug-listen, if it is given, until the returned function is called.
func (c *serveCmd) serveProfiles(ctx context.Context, logger *slog.Logger) (stop func(), err error) {
	if c.DebugListen == "" {
		return func() {}, nil
	}
	listener, err := listenOn(ctx, "--debug-listen", c.DebugListen)
	if err != nil {
		return nil, err
	}
	if !c.InsecureNoAuth && !gateway.IsLoopback(listener.Addr()) {
		return nil, errors.Join(usagef("other machines can reach --debug-listen %s, and profiles need no credential. Listen on "+
			"127.0.0.1, or, if the network keeps others away, give --insecure-no-auth.", c.DebugListen), listener.Close())
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

type devCertCmd struct {
	Dir    string   `arg:"" help:"Directory for the files; it is made if it is missing." type:"path"`
	Host   []string `help:"Names and addresses of the gateway." default:"localhost,127.0.0.1,::1"`
	Client string   `help:"Name in the client's certificate." default:"${owner}"`
}

// Help is shown by "fencegate dev-cert --help".
func (devCertCmd) Help() string {
	return "Makes an authority, and signs a certificate for the gateway and one for a client, valid for a year. The " +
		"authority's key is not kept: nobody can sign more. Files are never overwritten. Not for production."
}

// Run makes the files.
func (c *devCertCmd) Run(streams streams) error {
	authority, err := devcert.NewAuthority("fencegate dev-cert")
	if err != nil {
		return err
	}
	server, err := authority.Issue(devcert.Request{Name: c.Host[0], Hosts: c.Host})
	if err != nil {
		return err
	}
	client, err := authority.Issue(devcert.Request{Name: c.Client})
	if err != nil {
		return err
	}
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return err
	}
	for _, file := range []struct {
		name string
		text []byte
	}{
		{"ca.pem", authority.PEM},
		{"server.pem", server.Certificate}, {"server-key.pem", server.Key},
		{"client.pem", client.Certificate}, {"client-key.pem", client.Key},
	} {
		if err := writeNew(filepath.Join(c.Dir, file.name), file.text); err != nil {
			return err
		}
	}
	_, err = fmt.Fprintf(streams.out, `fencegate serve --tls-cert %[1]s/server.pem --tls-key %[1]s/server-key.pem --client-ca %[1]s/ca.pem
fencegate health --url https://%[2]s:8080 --ca-cert %[1]s/ca.pem --cert %[1]s/client.pem --key %[1]s/client-key.pem
`, c.Dir, c.Host[0])
	return err
}

// writeNew writes a file that only its owner can read, and none over another.
func writeNew(path string, text []byte) (err error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return usagef("%s is there already", path)
	} else if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	_, err = file.Write(text)
	return err
}
