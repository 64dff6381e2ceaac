package staged

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/fencegate/fencegate/demo"
	"github.com/fencegate/fencegate/internal/devcert"
	"github.com/fencegate/fencegate/internal/test/testenv/gateway"
	"github.com/fencegate/fencegate/internal/test/testenv/issuertest"
	"github.com/fencegate/fencegate/lockclient"
	"github.com/fencegate/fencegate/lockclient/admin"
	"github.com/fencegate/fencegate/lockclient/api"
)

const (
	accessAudience    = "fencegate"
	accessSubject     = "payments"
	accessStopTimeout = 10 * time.Second
	accessSPIFFE      = "spiffe://example.org/ns/demo/sa/reporter"
)

// accessFileText maps tokens and certificates to principals and grants: the URL of the issuer, and the end of names.
const accessFileText = `issuers:
  - name: ci
    issuer: %[1]s
    audiences: [` + accessAudience + `]
    rules:
      - when: {sub: ` + accessSubject + `}
        grants: ["lock:payments%[2]s"]
certificates:
  principal: "{spiffe}"
  rules:
    - when: {spiffe: "spiffe://example.org/ns/demo/sa/*"}
      grants: ["lock:reports%[2]s"]
`

// accessRun is two gateways that ask for credentials, and what issues these.
type accessRun struct {
	demo.Config

	print     func(demo.Event)
	dir       string // of certificates and the access file
	authority *devcert.Authority
	issuer    *issuertest.Issuer
	gateways  []*gateway.Process
	admin     *accessCaller
	keys      []string // IDs of the keys that were made
}

// start starts the issuer and the gateways, and makes the key of the administrator. After an error, too, stop is needed.
func (r *accessRun) start(ctx context.Context) (err error) {
	r.print(demo.Event{Event: "database", Text: "the database: " + r.DatabaseName})
	if r.dir, err = os.MkdirTemp("", "fencegate-demo-"); err != nil {
		return err
	}
	r.issuer = issuertest.Start()
	r.print(demo.Event{Event: "service", Text: "the issuer of tokens: " + r.issuer.URL})
	if err := r.writeFiles(); err != nil {
		return err
	}
	for n := range 2 {
		gateway, err := gateway.Run(ctx, r.Program, "--database-url", r.DatabaseURL,
			"--auth", "keys,tokens,certificates", "--access-file", r.path("access.yaml"),
			"--tls-cert", r.path("gateway.pem"), "--tls-key", r.path("gateway-key.pem"), "--client-ca", r.path("ca.pem"))
		if err != nil {
			return err
		}
		r.gateways = append(r.gateways, gateway)
		r.print(demo.Event{Event: "gateway", Text: fmt.Sprintf("gateway %d: %s", n+1, gateway.URL)})
	}
	return r.startAdmin(ctx)
}

func (r *accessRun) path(name string) string { return filepath.Join(r.dir, name) }

// writeFiles writes the files that the gateways read.
func (r *accessRun) writeFiles() (err error) {
	if r.authority, err = devcert.NewAuthority("fencegate demo"); err != nil {
		return err
	}
	pair, err := r.authority.Issue(devcert.Request{Name: "gateway", Hosts: []string{"127.0.0.1"}})
	if err != nil {
		return err
	}
	for name, text := range map[string][]byte{
		"ca.pem": r.authority.PEM, "gateway.pem": pair.Certificate, "gateway-key.pem": pair.Key,
		"access.yaml": fmt.Appendf(nil, accessFileText, r.issuer.URL, r.Suffix),
	} {
		if err := os.WriteFile(r.path(name), text, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// startAdmin makes the first key in the database, as the command does, since no gateway would accept the request.
func (r *accessRun) startAdmin(ctx context.Context) error {
	answer, err := exec.CommandContext(ctx, r.Program, "keys", "create", "admin", "--grant", "all:",
		"--in-database", r.DatabaseURL, "--output", "json").Output()
	if err != nil {
		return fmt.Errorf("fencegate keys create: %w", err)
	}
	var key api.NewKey
	if err := json.Unmarshal(answer, &key); err != nil {
		return err
	}
	r.keys = append(r.keys, key.ID)
	r.print(demo.Event{Event: "key", Actor: "admin", Text: "gets the first key, which is made in the database"})
	r.admin, err = r.caller("admin", "the key "+key.ID, lockclient.WithToken(key.Secret))
	return err
}

// certificate makes a client certificate with a SPIFFE ID.
func (r *accessRun) certificate() (tls.Certificate, error) {
	id, err := url.Parse(accessSPIFFE)
	if err != nil {
		return tls.Certificate{}, err
	}
	pair, err := r.authority.Issue(devcert.Request{Name: "reporter", URIs: []*url.URL{id}})
	if err != nil {
		return tls.Certificate{}, err
	}
	return pair.TLS()
}

// stop revokes the keys that were made, and ends all that was started.
func (r *accessRun) stop() {
	ctx, cancel := context.WithTimeout(context.Background(), accessStopTimeout)
	defer cancel()
	for len(r.keys) > 0 && r.admin != nil {
		last := len(r.keys) - 1 // the first one is the administrator's own
		_, _ = admin.New(r.admin.clients[0]).RevokeKey(ctx, r.keys[last])
		r.keys = r.keys[:last]
	}
	for _, gateway := range r.gateways {
		_ = gateway.Stop()
	}
	if r.issuer != nil {
		r.issuer.Close()
	}
	_ = os.RemoveAll(r.dir)
}

// accessCaller is a program with one credential, which it shows to both gateways.
type accessCaller struct {
	name, credential string // as they are printed
	clients          []*lockclient.Client
}

// caller returns a caller with a bearer credential, by the option, or with client certificates.
func (r *accessRun) caller(
	name, credential string, option lockclient.Option, certificates ...tls.Certificate,
) (*accessCaller, error) {
	c := &accessCaller{name: name, credential: credential}
	for _, gateway := range r.gateways {
		options := []lockclient.Option{lockclient.WithTLS(&tls.Config{
			MinVersion: tls.VersionTLS12, RootCAs: r.authority.Pool(), Certificates: certificates,
		})}
		if option != nil {
			options = append(options, option)
		}
		client, err := lockclient.New(gateway.URL, options...)
		if err != nil {
			return nil, err
		}
		c.clients = append(c.clients, client)
	}
	return c, nil
}

// attempt is an acquire with the code of its answer; "": a lease.
type attempt struct {
	caller *accessCaller
	lock   string
	want   api.Code
}

// expect makes each attempt at both gateways, releases what is granted, and prints the answers. It returns demo.ErrUnexpected
// if one is not as wanted.
func (r *accessRun) expect(ctx context.Context, attempts ...attempt) error {
	for _, a := range attempts {
		for n, client := range a.caller.clients {
			got, err := acquireOnce(ctx, client, a.lock)
			if err != nil {
				return err
			}
			if got != a.want {
				return r.unexpected(a.caller, "acquires %s by %s at gateway %d: %s", a.lock, a.caller.credential, n+1,
					answerText(got))
			}
		}
		r.print(demo.Event{Event: eventOf(a.want), Actor: a.caller.name, Code: string(a.want), Text: fmt.Sprintf(
			"acquires %s by %s at both gateways: %s", a.lock, a.caller.credential, answerText(a.want))})
	}
	return nil
}

// acquireOnce tries to acquire the lock and returns the code of the answer.
func acquireOnce(ctx context.Context, client *lockclient.Client, lock string) (api.Code, error) {
	lease, err := client.API().Acquire(ctx, lock, api.AcquireRequest{OwnerID: client.Owner()})
	if err == nil {
		return "", client.API().Release(ctx, lock, api.ReleaseRequest{
			OwnerID: lease.OwnerID, LeaseID: lease.LeaseID, FencingToken: lease.FencingToken,
		})
	}
	return codeOf(err)
}

func codeOf(err error) (api.Code, error) {
	var refusal *lockclient.Error
	if errors.As(err, &refusal) && refusal.Problem.Status != 0 {
		return refusal.Problem.Code, nil
	}
	return "", err
}

// until asks gateway n, from 1, who the caller is, until the answer has this code ("": it is known) or the limit has
// passed. It prints after what time that was, since then, and returns demo.ErrUnexpected if it was too late.
func (r *accessRun) until(
	ctx context.Context, c *accessCaller, n int, want api.Code, since time.Time, limit time.Duration,
) error {
	for {
		code := api.Code("")
		_, err := admin.New(c.clients[n-1]).WhoAmI(ctx)
		if err != nil {
			if code, err = codeOf(err); err != nil {
				return err
			}
		}
		after := time.Since(since)
		switch {
		case code == want:
			r.print(demo.Event{Event: eventOf(want), Actor: c.name, Code: string(want), Text: fmt.Sprintf(
				"shows %s to gateway %d: %s, after %.3fs", c.credential, n, answerText(want), after.Seconds())})
			return nil
		case after > limit:
			return r.unexpected(c, "shows %s to gateway %d: %s, still after %s", c.credential, n, answerText(code), after)
		}
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (r *accessRun) unexpected(c *accessCaller, format string, values ...any) error {
	ok, text := false, fmt.Sprintf(format, values...)
	r.print(demo.Event{Event: "result", OK: &ok, Text: "Result: UNEXPECTED: " + c.name + " " + text})
	return fmt.Errorf("%w: %s %s", demo.ErrUnexpected, c.name, text)
}

func eventOf(code api.Code) string {
	if code == "" {
		return "accepted"
	}
	return "refused"
}

func answerText(code api.Code) string {
	if code == "" {
		return "accepted"
	}
	return "REFUSED, " + string(code)
}
