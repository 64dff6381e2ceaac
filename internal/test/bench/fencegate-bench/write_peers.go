//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/redis/go-redis/v9"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/fencegate/fencegate/internal/test/testenv/peers"
)

// errFenced is a write that was rejected as stale. Only the writer has the lock, so something is wrong.
var errFenced = errors.New("the write was refused")

const (
	// setupInFlight is how many requests are under way while a peer's keys are made.
	setupInFlight = 64
	// connectTimeout is longer than a server waits for the processor while everything is busy on a few cores.
	connectTimeout = 30 * time.Second
)

// peer starts a peer and makes it a target.
func (w *writes) peer(ctx context.Context, name string) (writeTarget, error) {
	switch name {
	case "etcd":
		server, err := peers.StartEtcd(ctx)
		return etcdTarget(server), w.Keep(name, server, err)
	case "zookeeper":
		server, err := peers.StartZooKeeper(ctx)
		return zooKeeperTarget(server), w.Keep(name, server, err)
	}
	server, err := peers.StartRedis(ctx, "--appendonly", "yes", "--appendfsync", "always")
	return redisTarget(server), w.Keep(name, server, err)
}

// peerWrite makes a write over a connection of a peer.
type peerWrite[C any] func(ctx context.Context, client C, r *resource, value []byte) error

// sharing is a target whose clients share connections to a peer, each of which many may use at once.
func sharing[C any](
	server *peers.Peer, tuned []int, connect func(address string) (C, error), end func(C) error,
	prepare func(ctx context.Context, client C, l layout) (peerWrite[C], error),
) writeTarget {
	t := writeTarget{tuned: tuned, open: func(ctx context.Context, s setting) (writeSession, error) {
		var clients []C
		session := writeSession{close: func() (err error) {
			for _, client := range clients {
				err = errors.Join(err, end(client))
			}
			return err
		}}
		for range s.connections {
			client, err := connect(server.Address)
			if err != nil {
				return session, errors.Join(err, session.close())
			}
			clients = append(clients, client)
		}
		write, err := prepare(ctx, clients[0], s.layout)
		if err != nil {
			return session, errors.Join(err, session.close())
		}
		session.write = func(ctx context.Context, client int, w *writer) error {
			r, value := w.next()
			return write(ctx, clients[client%len(clients)], r, value)
		}
		return session, nil
	}}
	if server != nil {
		t.servers = []int{server.PID()}
	}
	return t
}

func connectEtcd(address string) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{Endpoints: []string{address}, DialTimeout: connectTimeout, Logger: zap.NewNop()})
}

// etcdTarget is a transaction: if the lock key still has its revision, put.
func etcdTarget(server *peers.Peer) writeTarget {
	prepare := func(ctx context.Context, client *clientv3.Client, l layout) (peerWrite[*clientv3.Client], error) {
		revisions, err := etcdLocks(ctx, client, l)
		return func(ctx context.Context, client *clientv3.Client, r *resource, value []byte) error {
			answer, err := client.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(lockOf(r)), "=", revisions[r.index])).
				Then(clientv3.OpPut(string(r.name)+"/"+benchKey, string(value))).Commit()
			if err == nil && !answer.Succeeded {
				err = fmt.Errorf("%w: %s", errFenced, r.name)
			}
			return err
		}, err
	}
	return sharing(server, []int{1, 4, 16, 64}, connectEtcd, (*clientv3.Client).Close, prepare)
}

func lockOf(r *resource) string { return "locks/" + string(r.name) }

// etcdLocks makes the lock keys that are not there yet, and returns their revisions: those are the tokens.
func etcdLocks(ctx context.Context, client *clientv3.Client, l layout) ([]int64, error) {
	there, err := client.Get(ctx, "locks/"+string(l.prefix)+"/", clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		return nil, err
	}
	known := map[string]int64{}
	for _, key := range there.Kvs {
		known[string(key.Key)] = key.ModRevision
	}
	revisions := make([]int64, len(l.resources))
	var putting errgroup.Group
	putting.SetLimit(setupInFlight)
	for i, r := range l.resources {
		if revisions[i] = known[lockOf(r)]; revisions[i] != 0 {
			continue
		}
		putting.Go(func() error {
			put, err := client.Put(ctx, lockOf(r), "held")
			if err == nil {
				revisions[i] = put.Header.Revision
			}
			return err
		})
	}
	return revisions, putting.Wait()
}

// connectZooKeeper waits until the client has a session.
func connectZooKeeper(address string) (*zk.Conn, error) {
	client, events, err := zk.Connect([]string{address}, peers.ZooKeeperSessionTimeout, zk.WithLogger(silent{}),
		zk.WithLogInfo(false))
	if err != nil {
		return nil, err
	}
	timeout := time.After(connectTimeout)
	for {
		select {
		case event := <-events:
			if event.State == zk.StateHasSession {
				return client, nil
			}
		case <-timeout:
			client.Close()
			return nil, fmt.Errorf("zookeeper at %s gives no session", address)
		}
	}
}

type silent struct{}

func (silent) Printf(string, ...any) {}

// zooKeeperTarget is a multi: check the version of the lock's node, set the data.
func zooKeeperTarget(server *peers.Peer) writeTarget {
	end := func(client *zk.Conn) error {
		client.Close()
		return nil
	}
	prepare := func(ctx context.Context, client *zk.Conn, l layout) (peerWrite[*zk.Conn], error) {
		return func(_ context.Context, client *zk.Conn, r *resource, value []byte) error {
			answers, err := client.Multi(&zk.CheckVersionRequest{Path: "/" + string(r.name) + "/lock", Version: 0},
				&zk.SetDataRequest{Path: "/" + string(r.name) + "/data", Data: value, Version: -1})
			for _, answer := range answers {
				err = errors.Join(err, answer.Error)
			}
			if err != nil {
				err = fmt.Errorf("%w: %s: %w", errFenced, r.name, err)
			}
			return err
		}, zooKeeperNodes(ctx, client, l)
	}
	return sharing(server, []int{1, 4, 16, 64}, connectZooKeeper, end, prepare)
}

// zooKeeperNodes makes the nodes of every resource, unless they are there already.
func zooKeeperNodes(ctx context.Context, client *zk.Conn, l layout) error {
	create := func(path string) error {
		_, err := client.Create(path, nil, 0, zk.WorldACL(zk.PermAll))
		if errors.Is(err, zk.ErrNodeExists) {
			return nil
		}
		return err
	}
	path := ""
	for segment := range strings.SplitSeq(string(l.prefix), "/") {
		path += "/" + segment
		if err := create(path); err != nil {
			return err
		}
	}
	last := l.resources[len(l.resources)-1]
	if there, _, err := client.Exists("/" + string(last.name) + "/data"); err != nil || there {
		return err
	}
	var creating errgroup.Group
	creating.SetLimit(setupInFlight)
	for _, r := range l.resources {
		creating.Go(func() error {
			path := "/" + string(r.name)
			return errors.Join(ctx.Err(), create(path), create(path+"/lock"), create(path+"/data"))
		})
	}
	return creating.Wait()
}

// checkAndSet is the fence by hand in Redis: a token that is not older than the last one seen, and the value, in one
// hash.
var checkAndSet = redis.NewScript(`
local last = redis.call("hget", KEYS[1], "token")
if last and tonumber(ARGV[1]) < tonumber(last) then return 0 end
redis.call("hset", KEYS[1], "token", ARGV[1], "value", ARGV[2])
return 1`)

// connectRedis makes a client with one connection.
func connectRedis(address string) *redis.Client {
	return redis.NewClient(&redis.Options{Addr: address, PoolSize: 1, MaxRetries: -1, ReadTimeout: connectTimeout,
		DisableIdentity: true})
}

// redisTarget is a script over an append-only file that is always flushed.
func redisTarget(server *peers.Peer) writeTarget {
	prepare := func(ctx context.Context, client *redis.Client, _ layout) (peerWrite[*redis.Client], error) {
		return func(ctx context.Context, client *redis.Client, r *resource, value []byte) error {
			set, err := checkAndSet.EvalSha(ctx, client, []string{string(r.name)}, r.token, value).Int()
			if err == nil && set != 1 {
				err = fmt.Errorf("%w: %s", errFenced, r.name)
			}
			return err
		}, checkAndSet.Load(ctx, client).Err()
	}
	connect := func(address string) (*redis.Client, error) { return connectRedis(address), nil }
	return sharing(server, []int{16, 64}, connect, (*redis.Client).Close, prepare)
}
