package writes

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/go-zookeeper/zk"
	"golang.org/x/sync/errgroup"

	"github.com/fencegate/fencegate/internal/bench/peers"
)

func startZooKeeper(ctx context.Context) (target, string, error) {
	server, err := peers.StartZooKeeper(ctx)
	if err != nil {
		return target{}, "", err
	}
	t := peerTarget(nameZooKeeper, server.Peer, 1, 4, 16, 64)
	t.open = func(ctx context.Context, s setting) (session, error) { return openZooKeeper(ctx, server, s) }
	return t, server.Version, nil
}

// openZooKeeper makes the clients, each a connection that many may use at once, and the nodes: of every resource the
// lock, whose version is the token, and the data.
func openZooKeeper(ctx context.Context, server *peers.ZooKeeper, s setting) (session, error) {
	var clients []*zk.Conn
	closeAll := func() error {
		for _, client := range clients {
			client.Close()
		}
		return nil
	}
	for range s.connections {
		client, err := server.Connect()
		if err != nil {
			return session{}, errors.Join(err, closeAll())
		}
		clients = append(clients, client)
	}
	if err := zooKeeperNodes(ctx, clients[0], s.layout); err != nil {
		return session{}, errors.Join(err, closeAll())
	}
	locks, data := nodesOf(s.layout, lockNode), nodesOf(s.layout, dataNode)
	return session{close: closeAll, write: func(_ context.Context, client int, w *writer) error {
		r, value := w.next()
		answers, err := clients[client%len(clients)].Multi(
			&zk.CheckVersionRequest{Path: locks[r.index], Version: 0},
			&zk.SetDataRequest{Path: data[r.index], Data: value, Version: -1})
		for _, answer := range answers {
			err = errors.Join(err, answer.Error)
		}
		if err != nil {
			err = fmt.Errorf("%w: %s: %w", errFenced, r.name, err)
		}
		return err
	}}, nil
}

const (
	lockNode = "lock"
	dataNode = "data"
)

func nodesOf(l layout, child string) []string {
	paths := make([]string, len(l.resources))
	for i, r := range l.resources {
		paths[i] = "/" + string(r.name) + "/" + child
	}
	return paths
}

// zooKeeperNodes makes the nodes, unless they are there already.
func zooKeeperNodes(ctx context.Context, client *zk.Conn, l layout) error {
	path := ""
	for segment := range strings.SplitSeq(string(l.prefix), "/") {
		path += "/" + segment
		if err := createNode(client, path); err != nil {
			return err
		}
	}
	last := l.resources[len(l.resources)-1]
	if there, _, err := client.Exists("/" + string(last.name) + "/" + dataNode); err != nil || there {
		return err
	}
	var creating errgroup.Group
	creating.SetLimit(setupInFlight)
	for _, r := range l.resources {
		creating.Go(func() error {
			if err := ctx.Err(); err != nil {
				return err
			}
			path := "/" + string(r.name)
			return errors.Join(createNode(client, path), createNode(client, path+"/"+lockNode),
				createNode(client, path+"/"+dataNode))
		})
	}
	return creating.Wait()
}

func createNode(client *zk.Conn, path string) error {
	_, err := client.Create(path, nil, 0, zk.WorldACL(zk.PermAll))
	if errors.Is(err, zk.ErrNodeExists) {
		return nil
	}
	return err
}
