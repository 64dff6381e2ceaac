package demo

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
)

// issuer issues tokens, and serves its key by OpenID Connect Discovery.
type issuer struct {
	url    string
	server *http.Server

	mu   sync.Mutex
	made int
	key  jose.JSONWebKey // private
}

// startIssuer starts an issuer on the loopback interface, which the caller ends with stop.
func startIssuer() (*issuer, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	i := &issuer{url: "http://" + listener.Addr().String()}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(map[string]string{"issuer": i.url, "jwks_uri": i.url + "/keys"})
	})
	mux.HandleFunc("GET /keys", func(w http.ResponseWriter, _ *http.Request) {
		key := i.current()
		_ = json.NewEncoder(w).Encode(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{key.Public()}})
	})
	i.server = &http.Server{Handler: mux, ReadHeaderTimeout: stopTimeout}
	err = i.replaceKey()
	go func() { _ = i.server.Serve(listener) }()
	return i, err
}

func (i *issuer) stop() { _ = i.server.Close() }

// replaceKey withdraws the key and makes another one.
func (i *issuer) replaceKey() error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	i.mu.Lock()
	defer i.mu.Unlock()
	i.made++
	i.key = jose.JSONWebKey{Key: key, KeyID: fmt.Sprintf("key-%d", i.made), Algorithm: string(jose.ES256), Use: "sig"}
	return err
}

func (i *issuer) current() jose.JSONWebKey {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.key
}

// token signs a token that is valid for five minutes.
func (i *issuer) token(audience, subject string) (string, error) {
	options := (&jose.SignerOptions{}).WithType("JWT")
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: i.current()}, options)
	if err != nil {
		return "", err
	}
	now := time.Now()
	return jwt.Signed(signer).Claims(jwt.Claims{
		Issuer: i.url, Audience: jwt.Audience{audience}, Subject: subject,
		IssuedAt: jwt.NewNumericDate(now), Expiry: jwt.NewNumericDate(now.Add(5 * time.Minute)),
	}).Serialize()
}
