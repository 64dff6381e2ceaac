package demo

import (
	"cmp"
	"context"
	"net"
	"net/url"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencegate/fencegate/internal/testenv/network"
)

// networkFailure is a failure of the network of A: A reaches the gateway, and its database, by relays.
type networkFailure struct {
	noFailure

	relays []*network.Relay
}

// prepare puts relays before what A speaks to. A writes when it is told.
func (n *networkFailure) prepare(ctx context.Context, r *round) error {
	n.stop()
	r.a.Told = true
	gateway, err := url.Parse(r.a.GatewayURL)
	if err != nil {
		return err
	}
	port := cmp.Or(gateway.Port(), map[string]string{"http": "80", "https": "443"}[gateway.Scheme])
	r.a.GatewayVia, err = n.relay(ctx, "tcp", net.JoinHostPort(gateway.Hostname(), port))
	if err != nil || r.a.DatabaseURL == "" {
		return err
	}
	database, err := pgx.ParseConfig(r.a.DatabaseURL)
	if err != nil {
		return err
	}
	kind, address := pgconn.NetworkAddress(database.Host, database.Port)
	r.a.DatabaseVia, err = n.relay(ctx, kind, address)
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

func (n *networkFailure) stop() {
	for _, r := range n.relays {
		r.Close()
	}
	n.relays = nil
}
