//go:build unix

package writes

import (
	"context"
	"crypto/tls"
	"os"
	"path/filepath"

	"github.com/fencegate/fencegate/internal/access"
	"github.com/fencegate/fencegate/internal/apikey"
	"github.com/fencegate/fencegate/internal/devcert"
	"github.com/fencegate/fencegate/store"
)

// startKeyed runs a gateway that wants an API key, and is spoken to by encryption; nil: without TLS.
func (r *rig) startKeyed(ctx context.Context, name string, encryption *tls.Config, flags ...string) (target, error) {
	credential, id, digest := apikey.New()
	_, err := r.st.CreateKey(ctx, store.KeyRequest{
		ID: id, Digest: digest, CreatedBy: "bench", Principal: "bench", Grants: []access.Grant{{Scope: access.Write}},
	})
	if err != nil {
		return target{}, err
	}
	gateway, err := r.start(ctx, append(flags, "--auth", "keys")...)
	if err != nil {
		return target{}, err
	}
	t := target{name: name, role: roleGateway, pids: []int{gateway.PID()}, access: clientAccess{credential, encryption}}
	return t.overWires(gateway.URL, r.st, putting), nil
}

// startEncrypted runs a gateway that wants an API key over TLS.
func (r *rig) startEncrypted(ctx context.Context) (target, error) {
	authority, err := devcert.NewAuthority("bench")
	if err != nil {
		return target{}, err
	}
	server, err := authority.Issue(devcert.Request{Name: "gateway", Hosts: []string{"127.0.0.1"}})
	if err != nil {
		return target{}, err
	}
	dir, err := os.MkdirTemp("", "fencegate-bench-")
	if err != nil {
		return target{}, err
	}
	r.onClose(func() error { return os.RemoveAll(dir) })
	certificate, key := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	if err := os.WriteFile(certificate, server.Certificate, 0o600); err != nil {
		return target{}, err
	}
	if err := os.WriteFile(key, server.Key, 0o600); err != nil {
		return target{}, err
	}
	encryption := &tls.Config{RootCAs: authority.Pool(), MinVersion: tls.VersionTLS13}
	return r.startKeyed(ctx, nameHTTPTLS, encryption, "--tls-cert", certificate, "--tls-key", key)
}
