package main

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"net"
	"os"
	"strings"
	"sync/atomic"

	"github.com/fencegate/fencegate/lockclient"
)

// variableBearer has a credential. No flag has: process lists show those. FENCEGATE_TOKEN is a fencing token.
const variableBearer = "FENCEGATE_BEARER_TOKEN"

// connectionFlags say how commands identify gateways, and themselves.
type connectionFlags struct {
	CACert    string `group:"connection" help:"PEM file of the authority that has signed the gateways' certificates. Default: the system's." name:"ca-cert" type:"path" placeholder:"PATH"`
	Cert      string `group:"connection" help:"PEM file of the client's certificate; it is read for each connection." type:"path" placeholder:"PATH"`
	Key       string `group:"connection" help:"PEM file of the private key of --cert." type:"path" placeholder:"PATH"`
	TokenFile string `group:"connection" help:"File of the API key or token to send; it is read again when it changes. Without it, FENCEGATE_BEARER_TOKEN has the credential itself." type:"path" placeholder:"PATH"`
}

// token returns the option that sends the credential; none if there is no credential.
func (f connectionFlags) token() []lockclient.Option {
	if f.TokenFile != "" {
		return []lockclient.Option{lockclient.WithTokenFile(f.TokenFile)}
	}
	if token := os.Getenv(variableBearer); token != "" {
		return []lockclient.Option{lockclient.WithToken(token)}
	}
	return nil
}

// tls returns nil if no flag is given.
func (f connectionFlags) tls() (*tls.Config, error) {
	if f.CACert == "" && f.Cert == "" && f.Key == "" {
		return nil, nil
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if f.CACert != "" {
		text, err := os.ReadFile(f.CACert)
		if err != nil {
			return nil, usagef("--ca-cert: %v", err)
		}
		if config.RootCAs = x509.NewCertPool(); !config.RootCAs.AppendCertsFromPEM(text) {
			return nil, usagef("--ca-cert: %s has no certificate in PEM", f.CACert)
		}
	}
	if f.Cert != "" || f.Key != "" {
		own := &clientCertificate{path: f.Cert, keyPath: cmp.Or(f.Key, f.Cert)}
		if _, err := own.get(nil); err != nil {
			return nil, usagef("--cert and --key: %v", err)
		}
		config.GetClientCertificate = own.get
	}
	return config, nil
}

// withScheme completes a bare address, host:port: with https where TLS is configured by flags, else with http.
func (f connectionFlags) withScheme(url string) string {
	if strings.Contains(url, "/") {
		return url
	}
	if _, port, err := net.SplitHostPort(url); err != nil || port == "" || strings.Trim(port, "0123456789") != "" {
		return url
	}
	if f.CACert != "" || f.Cert != "" {
		return "https://" + url
	}
	return "http://" + url
}

// environment has the flags for commands that are started under this one. They inherit FENCEGATE_BEARER_TOKEN.
func (f connectionFlags) environment() []string {
	var environment []string
	for variable, value := range map[string]string{
		"FENCEGATE_CA_CERT": f.CACert, "FENCEGATE_CERT": f.Cert, "FENCEGATE_KEY": f.Key, "FENCEGATE_TOKEN_FILE": f.TokenFile,
	} {
		if value != "" {
			environment = append(environment, variable+"="+value)
		}
	}
	return environment
}

// clientCertificate reads a certificate and its key for each connection: they may be renewed.
type clientCertificate struct {
	path, keyPath string
	last          atomic.Pointer[tls.Certificate]
}

// get returns the certificate in the files, or the last one if they can't be used, such as between the writes of the
// two.
func (c *clientCertificate) get(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	certificate, err := tls.LoadX509KeyPair(c.path, c.keyPath)
	if err == nil {
		c.last.Store(&certificate)
	} else if c.last.Load() == nil {
		return nil, err
	}
	return c.last.Load(), nil
}
