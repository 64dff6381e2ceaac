package external

import (
	"context"
	"fmt"
	"time"

	"github.com/fencegate/fencegate/demo"
	"github.com/fencegate/fencegate/internal/bench/peers"
)

const (
	dialTimeout   = 5 * time.Second
	retryInterval = 100 * time.Millisecond
)

// Names are those of the services, as Connect and Start take them.
const (
	NameEtcd      = "etcd"
	NameZooKeeper = "zookeeper"
	NameRedis     = "redis"
)

// Connect returns the service with a name.
func Connect(name, address string) (demo.Service, error) {
	switch name {
	case NameEtcd:
		return DialEtcd(address)
	case NameZooKeeper:
		return NewZooKeeper(address), nil
	case NameRedis:
		return NewRedis(address), nil
	}
	return nil, fmt.Errorf("there is no service %q", name)
}

// Start runs a server of a service until its Stop. It returns peers.ErrAbsent if the machine has none.
func Start(ctx context.Context, name string) (*peers.Peer, error) {
	switch name {
	case NameEtcd:
		server, err := peers.StartEtcd(ctx)
		return server.Peer, err
	case NameZooKeeper:
		// A session may be no shorter than two ticks.
		server, err := peers.StartZooKeeper(ctx, "tickTime=500")
		if err != nil {
			return nil, err
		}
		return server.Peer, nil
	case NameRedis:
		server, err := peers.StartRedis(ctx)
		return server.Peer, err
	}
	return nil, fmt.Errorf("there is no service %q", name)
}
