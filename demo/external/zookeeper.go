package external

import (
	"context"
	"errors"
	"fmt"
	"path"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/fencegate/fencegate/demo"
)

// ZooKeeper is a demo.Service by the lock of go-zookeeper. The token is the czxid of the lock's own node: the number of
// the transaction that created it.
type ZooKeeper struct{ address string }

// NewZooKeeper returns the service of the ZooKeeper at an address.
func NewZooKeeper(address string) *ZooKeeper { return &ZooKeeper{address} }

// Acquire queues for the lock with a sequential node of a session of its own.
func (z *ZooKeeper) Acquire(_ context.Context, lock string, ttl time.Duration) (demo.Grant, error) {
	connection, _, err := zk.Connect([]string{z.address}, ttl, zk.WithLogger(silent{}), zk.WithLogInfo(false))
	if err != nil {
		return demo.Grant{}, err
	}
	root := "/" + lock
	if err := zk.NewLock(connection, root, zk.WorldACL(zk.PermAll)).Lock(); err != nil {
		return demo.Grant{}, err
	}
	nodes, _, err := connection.Children(root)
	if err != nil {
		return demo.Grant{}, err
	}
	for _, node := range nodes {
		_, stat, err := connection.Exists(path.Join(root, node))
		switch {
		case errors.Is(err, zk.ErrNoNode):
		case err != nil:
			return demo.Grant{}, err
		case stat.EphemeralOwner == connection.SessionID():
			return demo.Grant{Token: stat.Czxid, Number: "czxid"}, nil
		}
	}
	return demo.Grant{}, fmt.Errorf("the session has expired: no node in %s is its own", root)
}

type silent struct{}

func (silent) Printf(string, ...any) {}
