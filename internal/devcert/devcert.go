// Package devcert makes certificates for trials and tests: an authority whose key is kept nowhere, and what it signs.
package devcert

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"net"
	"net/url"
	"time"
)

// Lifetime is how long certificates are valid by default.
const Lifetime = 365 * 24 * time.Hour

// backdated is how long before now certificates begin to be valid, for clocks that are late.
const backdated = time.Hour

// Authority signs certificates.
type Authority struct {
	// PEM is the certificate that verifies what the authority has signed.
	PEM []byte

	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

// Pair is a certificate and its private key, both as PEM.
type Pair struct{ Certificate, Key []byte }

// Request describes a certificate.
type Request struct {
	// Name is the common name.
	Name string
	// Hosts are the names and addresses of a server. Without them the certificate is a client's.
	Hosts []string
	// Names are DNS names of a client, and URIs are its URIs.
	Names []string
	URIs  []*url.URL
	// Until is the end of its validity. Default: Lifetime from now.
	Until time.Time
}

// NewAuthority makes an authority.
func NewAuthority(name string) (*Authority, error) {
	template := x509.Certificate{
		Subject:   pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-backdated), NotAfter: time.Now().Add(Lifetime),
		KeyUsage: x509.KeyUsageCertSign, BasicConstraintsValid: true, IsCA: true, MaxPathLenZero: true,
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	der, err := x509.CreateCertificate(rand.Reader, &template, &template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	certificate, err := x509.ParseCertificate(der)
	return &Authority{PEM: encode("CERTIFICATE", der), certificate: certificate, key: key}, err
}

// Issue makes a certificate.
func (a *Authority) Issue(request Request) (Pair, error) {
	template := x509.Certificate{
		Subject:   pkix.Name{CommonName: request.Name},
		NotBefore: time.Now().Add(-backdated), NotAfter: request.Until,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	template.DNSNames, template.URIs = request.Names, request.URIs
	if request.Until.IsZero() {
		template.NotAfter = a.certificate.NotAfter
	}
	for _, host := range request.Hosts {
		template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
		if address := net.ParseIP(host); address != nil {
			template.IPAddresses = append(template.IPAddresses, address)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, err
	}
	der, err := x509.CreateCertificate(rand.Reader, &template, a.certificate, key.Public(), a.key)
	if err != nil {
		return Pair{}, err
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	return Pair{Certificate: encode("CERTIFICATE", der), Key: encode("PRIVATE KEY", secret)}, err
}

// Pool has the authority alone.
func (a *Authority) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.certificate)
	return pool
}

// TLS returns the pair as crypto/tls needs it.
func (p Pair) TLS() (tls.Certificate, error) { return tls.X509KeyPair(p.Certificate, p.Key) }

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}
