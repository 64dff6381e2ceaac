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

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencegate/fencegate/demo"
	"github.com/fencegate/fencegate/internal/test/testenv/network"
)

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
