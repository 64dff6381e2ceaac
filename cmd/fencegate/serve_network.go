package main

import (
	"log/slog"
	"net"

	"github.com/fencegate/fencegate/gateway"
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

// checkOpen refuses a gateway that any machine could use.
func (f networkFlags) checkOpen(listen net.Addr, authenticated bool) error {
	if authenticated || f.InsecureNoAuth || gateway.IsLoopback(listen) {
		return nil
	}
	return usagef("other machines can reach --listen %s, and no authentication is configured: every one of them could "+
		"acquire, write, break leases and set policies. Listen on 127.0.0.1, or, if the network keeps others away, give "+
		"--insecure-no-auth.", listen)
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
