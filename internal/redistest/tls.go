package redistest

import (
	"crypto/x509"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/fencegate/fencegate/internal/devcert"
	"github.com/fencegate/fencegate/internal/freeport"
)

// StartTLS runs a server with a certificate of its own. It returns the URL, and the roots by which a client trusts it.
func StartTLS(t testing.TB) (url string, roots *x509.CertPool) {
	t.Helper()
	dir, address := t.TempDir(), freeport.Address(t)
	certFile, keyFile := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	host, port, err := net.SplitHostPort(address)
	check(t, err)
	authority, err := devcert.NewAuthority("test")
	check(t, err)
	pair, err := authority.Issue(devcert.Request{Name: "redis", Hosts: []string{host}})
	check(t, err)
	check(t, os.WriteFile(certFile, pair.Certificate, 0o600))
	check(t, os.WriteFile(keyFile, pair.Key, 0o600))
	Start(t, "tls-port "+port, "tls-cert-file "+certFile, "tls-key-file "+keyFile, "tls-ca-cert-file "+certFile,
		"tls-auth-clients no")
	return "rediss://" + address, authority.Pool()
}
