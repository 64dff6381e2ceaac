// Package staged has the demos that need more than fencegate and PostgreSQL: networks that fail, Redis servers, an issuer of
// tokens. The program fencegate-demo runs them; fencegate does not link them.
//
// Partition, DelayedWrite, RedisFailover and RedlockClock run the two variants of package demo, with its workers. Each is a
// [demo.Failure]. Access shows something else: who may do what, and until when, at two gateways that accept API keys,
// client certificates and tokens.
package staged

import (
	"cmp"
	"context"
	"net"
	"net/url"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencegate/fencegate/demo"
	"github.com/fencegate/fencegate/internal/test/testenv/network"
	"github.com/fencegate/fencegate/lockclient"
	"github.com/fencegate/fencegate/lockclient/admin"
	"github.com/fencegate/fencegate/lockclient/api"
)

const (
	// rotationOverlap is long enough to use both keys, also on a busy machine.
	rotationOverlap = 3 * time.Second
	// keysLimit is how late a gateway may know a change of keys: the longest time between two looks for changes, and
	// some for a busy machine. A notification takes milliseconds.
	keysLimit = 10 * time.Second
	// issuerLimit is the same for keys of an issuer, which gateways read every 10 s at most.
	issuerLimit = 20 * time.Second
)

// Access shows who may do what, with two gateways that accept API keys, tokens and client certificates. It returns
// demo.ErrUnexpected if a credential is accepted or refused that must not be. If ctx ends before, it returns the cause.
func Access(ctx context.Context, config demo.Config) error {
	return config.Narrate(ctx, len("reporter"), func(ctx context.Context, print func(demo.Event)) error {
		return showAccess(ctx, &accessRun{Config: config, print: print})
	})
}

func showAccess(ctx context.Context, run *accessRun) error {
	defer run.stop()
	if err := run.start(ctx); err != nil {
		return err
	}
	for _, chapter := range []struct {
		title string
		show  func(context.Context) error
	}{
		{"API keys: an administrator makes, replaces and revokes them; both gateways know it within milliseconds",
			run.showKeys},
		{"Client certificates: the SPIFFE ID is the caller's name, and the access file has its grants",
			run.showCertificates},
		{"Tokens: an issuer signs them, and the access file has the grants of their claims", run.showTokens},
	} {
		run.print(demo.Event{Event: "round", Text: chapter.title})
		if err := chapter.show(ctx); err != nil {
			return err
		}
	}
	ok := true
	run.print(demo.Event{Event: "result", OK: &ok, Text: "Result: each credential was accepted on the names that it is for, " +
		"for as long as it was valid, and nowhere else."})
	return nil
}

// showKeys makes a key, replaces it by another one, and revokes that.
func (r *accessRun) showKeys(ctx context.Context) error {
	lock, other := "jobs"+r.Suffix+"/1", "accounts"+r.Suffix+"/1"
	if err := r.known(ctx, r.admin); err != nil {
		return err
	}
	first, id, err := r.makeKey(ctx, "makes a key for app: lock:jobs"+r.Suffix,
		func(ctx context.Context, keys *admin.Client) (api.NewKey, error) {
			return keys.CreateKey(ctx, api.KeyRequest{Principal: "app", Grants: []string{"lock:jobs" + r.Suffix}})
		})
	if err != nil {
		return err
	}
	if err := r.expect(ctx, attempt{first, lock, ""}, attempt{first, other, api.CodeForbidden}); err != nil {
		return err
	}

	overlap, rotated := rotationOverlap.Milliseconds(), time.Now()
	second, id, err := r.makeKey(ctx, "replaces the key "+id+", which works for "+rotationOverlap.String()+" more",
		func(ctx context.Context, keys *admin.Client) (api.NewKey, error) {
			return keys.RotateKey(ctx, id, api.RotateRequest{OverlapMS: &overlap})
		})
	if err != nil {
		return err
	}
	if err := r.expect(ctx, attempt{first, lock, ""}, attempt{second, lock, ""}); err != nil {
		return err
	}
	for n := range r.gateways {
		if err := r.until(ctx, first, n+1, api.CodeUnauthenticated, rotated, rotationOverlap+keysLimit); err != nil {
			return err
		}
	}
	if err := r.expect(ctx, attempt{second, lock, ""}); err != nil {
		return err
	}
	return r.revoke(ctx, second, id, lock)
}

// makeKey lets the administrator make a key at gateway 1, and returns when gateway 2 knows it, too.
func (r *accessRun) makeKey(
	ctx context.Context, text string, send func(context.Context, *admin.Client) (api.NewKey, error),
) (caller *accessCaller, id string, err error) {
	key, err := send(ctx, admin.New(r.admin.clients[0]))
	if err != nil {
		return nil, "", err
	}
	r.keys = append(r.keys, key.ID)
	r.print(demo.Event{Event: "key", Actor: "admin", Text: text})
	if caller, err = r.caller("app", "the key "+key.ID, lockclient.WithToken(key.Secret)); err != nil {
		return nil, "", err
	}
	return caller, key.ID, r.known(ctx, caller)
}

// known returns when both gateways know the caller.
func (r *accessRun) known(ctx context.Context, c *accessCaller) error {
	began := time.Now()
	for n := range r.gateways {
		if err := r.until(ctx, c, n+1, "", began, keysLimit); err != nil {
			return err
		}
	}
	return nil
}

// revoke revokes a key at gateway 1. Gateway 2 refuses it soon.
func (r *accessRun) revoke(ctx context.Context, c *accessCaller, id, lock string) error {
	if _, err := admin.New(r.admin.clients[0]).RevokeKey(ctx, id); err != nil {
		return err
	}
	revoked := time.Now()
	r.print(demo.Event{Event: "key", Actor: "admin", Text: "revokes the key " + id + " at gateway 1"})
	if err := r.until(ctx, c, 1, api.CodeUnauthenticated, revoked, 0); err != nil {
		return err
	}
	if err := r.until(ctx, c, 2, api.CodeUnauthenticated, revoked, keysLimit); err != nil {
		return err
	}
	return r.expect(ctx, attempt{c, lock, api.CodeUnauthenticated})
}

// showCertificates uses a client certificate, and a connection without one.
func (r *accessRun) showCertificates(ctx context.Context) error {
	certificate, err := r.certificate()
	if err != nil {
		return err
	}
	reporter, err := r.caller("reporter", "the certificate of "+accessSPIFFE, nil, certificate)
	if err != nil {
		return err
	}
	nobody, err := r.caller("nobody", "no credential", nil)
	if err != nil {
		return err
	}
	lock, other := "reports"+r.Suffix+"/1", "jobs"+r.Suffix+"/1"
	return r.expect(ctx, attempt{reporter, lock, ""}, attempt{reporter, other, api.CodeForbidden},
		attempt{nobody, lock, api.CodeUnauthenticated})
}

// showTokens uses tokens before and after their issuer has replaced its key.
func (r *accessRun) showTokens(ctx context.Context) error {
	lock, other := "payments"+r.Suffix+"/1", "jobs"+r.Suffix+"/1"
	former, err := r.tokenCaller("a token", accessAudience)
	if err != nil {
		return err
	}
	foreign, err := r.tokenCaller("a token for another service", "another-service")
	if err != nil {
		return err
	}
	if err := r.expect(ctx, attempt{former, lock, ""}, attempt{former, other, api.CodeForbidden},
		attempt{foreign, lock, api.CodeUnauthenticated}); err != nil {
		return err
	}

	r.issuer.Rotate()
	r.issuer.Withdraw()
	replaced := time.Now()
	r.print(demo.Event{Event: "key", Text: "the issuer withdraws its key and makes another one; gateways read its keys every " +
		"10 s at most"})
	next, err := r.tokenCaller("a token of the new key", accessAudience)
	if err != nil {
		return err
	}
	for n := range r.gateways {
		if err := r.until(ctx, next, n+1, "", replaced, issuerLimit); err != nil {
			return err
		}
	}
	former.credential = "the token of the withdrawn key"
	if err := r.expect(ctx, attempt{next, lock, ""}, attempt{former, lock, api.CodeUnavailable}); err != nil {
		return err
	}
	r.print(demo.Event{Event: "key", Text: "the gateways look for that key once more; after that, the answer is unauthenticated"})
	return nil
}

func (r *accessRun) tokenCaller(credential, audience string) (*accessCaller, error) {
	token := r.issuer.Token(map[string]any{"aud": audience, "sub": accessSubject})
	return r.caller("payments", credential, lockclient.WithToken(token))
}

// Partition shows a worker that the network cuts off. Its heartbeats fail and its lease expires, but it goes on. What it
// has sent arrives when the network is back. The outcome is that of [demo.Zombie.Run].
func Partition(ctx context.Context, config demo.Config) error {
	return config.Run(ctx, &partition{})
}

type partition struct{ networkFailure }

func (p *partition) Prepare(ctx context.Context, r *demo.Round) error {
	r.A.Heartbeat = true
	return p.networkFailure.Prepare(ctx, r)
}

func (p *partition) Strike(_ context.Context, r *demo.Round) error {
	p.hold()
	r.Tell(r.A.Name, demo.Event{Event: "cut", Text: "is cut off by the network"})
	return r.FollowA("lost")
}

func (p *partition) Heal(_ context.Context, r *demo.Round) error {
	if err := r.ReleaseA(); err != nil {
		return err
	}
	if err := r.FollowA("sent"); err != nil {
		return err
	}
	r.Tell(r.A.Name, demo.Event{Event: "healed", Text: "is reached by the network again, which delivers what it has kept"})
	p.pass()
	return nil
}

// DelayedWrite shows a write that was sent in time, and that the network holds until the lease has expired and another
// worker has written. The outcome is that of [demo.Zombie.Run].
func DelayedWrite(ctx context.Context, config demo.Config) error {
	return config.Run(ctx, &delay{})
}

type delay struct{ networkFailure }

func (d *delay) Strike(ctx context.Context, r *demo.Round) error {
	arrived := d.hold()
	if err := r.ReleaseA(); err != nil {
		return err
	}
	if err := r.FollowA("sent"); err != nil {
		return err
	}
	select {
	case <-arrived:
	case <-ctx.Done():
		return ctx.Err()
	}
	r.Tell(r.A.Name, demo.Event{Event: "delayed", Text: "waits for the answer: the network holds the request"})
	return nil
}

func (d *delay) Heal(_ context.Context, r *demo.Round) error {
	r.Tell("", demo.Event{Event: "delivered", Text: "the network delivers the request of " + r.A.Name})
	d.pass()
	return nil
}

// networkFailure is a failure of the network of A: A reaches the gateway, and its database, by relays.
type networkFailure struct {
	demo.NoFailure

	relays []*network.Relay
}

// Prepare puts relays before what A speaks to. A writes when it is told.
func (n *networkFailure) Prepare(ctx context.Context, r *demo.Round) error {
	n.Stop()
	r.A.Told = true
	gateway, err := url.Parse(r.A.GatewayURL)
	if err != nil {
		return err
	}
	port := cmp.Or(gateway.Port(), map[string]string{"http": "80", "https": "443"}[gateway.Scheme])
	r.A.GatewayVia, err = n.relay(ctx, "tcp", net.JoinHostPort(gateway.Hostname(), port))
	if err != nil || r.A.DatabaseURL == "" {
		return err
	}
	database, err := pgx.ParseConfig(r.A.DatabaseURL)
	if err != nil {
		return err
	}
	kind, address := pgconn.NetworkAddress(database.Host, database.Port)
	r.A.DatabaseVia, err = n.relay(ctx, kind, address)
	return err
}

// relay makes a relay, and returns its address.
func (n *networkFailure) relay(ctx context.Context, kind, target string) (string, error) {
	made, err := network.NewRelay(ctx, kind, target)
	if err != nil {
		return "", err
	}
	n.relays = append(n.relays, made)
	return made.Address(), nil
}

// hold keeps all that A sends. The channel is closed when something has arrived where A writes.
func (n *networkFailure) hold() (arrived <-chan struct{}) {
	for _, r := range n.relays {
		arrived = r.Hold()
	}
	return arrived
}

// pass passes on what was held.
func (n *networkFailure) pass() {
	for _, r := range n.relays {
		r.Pass()
	}
}

func (n *networkFailure) Stop() {
	for _, r := range n.relays {
		r.Close()
	}
	n.relays = nil
}
