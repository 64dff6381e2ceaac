//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/go-zookeeper/zk"
	"github.com/redis/go-redis/v9"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"

	"github.com/fencegate/fencegate/internal/bench/peers"
)

// errFenced is a write that was rejected as stale. Only the writer has the lock, so something is wrong.
var errFenced = errors.New("the write was refused")

// setupInFlight is how many requests are under way while a peer's keys are made.
const setupInFlight = 64

// sharing is a target whose clients share connections, each of which many may use at once.
func sharing[C any](
	peer *peers.Peer, connect func() (C, error), end func(C) error,
	prepare func(ctx context.Context, client C, l layout) (write func(context.Context, C, *resource, []byte) error,
		err error),
) writeTarget {
	return writeTarget{tuned: []int{1, 4, 16, 64}, servers: []int{peer.PID()},
		open: func(ctx context.Context, s setting) (writeSession, error) {
			var clients []C
			session := writeSession{close: func() (err error) {
				for _, client := range clients {
					err = errors.Join(err, end(client))
				}
				return err
			}}
			for range s.connections {
				client, err := connect()
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
}

// etcd is a transaction: if the lock key still has its revision, put.
func (w *writes) etcd(ctx context.Context) (writeTarget, error) {
	server, err := peers.StartEtcd(ctx)
	if err != nil {
		return writeTarget{}, err
	}
	w.OnClose(server.Stop)
	w.Report.Peers["etcd"] = server.Version
	return etcdTarget(server), nil
}

func etcdTarget(server *peers.Etcd) writeTarget {
	prepare := func(ctx context.Context, client *clientv3.Client, l layout) (func(context.Context, *clientv3.Client,
		*resource, []byte) error, error) {
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
	return sharing(server.Peer, server.Connect, (*clientv3.Client).Close, prepare)
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

// zooKeeper is a multi: check the version of the lock's node, set the data.
func (w *writes) zooKeeper(ctx context.Context) (writeTarget, error) {
	server, err := peers.StartZooKeeper(ctx)
	if err != nil {
		return writeTarget{}, err
	}
	w.OnClose(server.Stop)
	w.Report.Peers["zookeeper"] = server.Version
	return zooKeeperTarget(server), nil
}

func zooKeeperTarget(server *peers.ZooKeeper) writeTarget {
	end := func(client *zk.Conn) error {
		client.Close()
		return nil
	}
	prepare := func(ctx context.Context, client *zk.Conn, l layout) (func(context.Context, *zk.Conn, *resource,
		[]byte) error, error) {
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
	return sharing(server.Peer, server.Connect, end, prepare)
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

// redis is a script over an append-only file that is flushed always, or every second.
func (w *writes) redis(ctx context.Context, name string) (writeTarget, error) {
	fsync := "always"
	if name == "redis-everysec" {
		fsync = "everysec"
	}
	server, err := peers.StartRedis(ctx, "--appendonly", "yes", "--appendfsync", fsync)
	if err != nil {
		return writeTarget{}, err
	}
	w.OnClose(server.Stop)
	w.Report.Peers[name] = server.Version
	return redisTarget(server), nil
}

func redisTarget(server *peers.Redis) writeTarget {
	return writeTarget{tuned: []int{16, 64}, servers: []int{server.PID()},
		open: func(ctx context.Context, s setting) (writeSession, error) {
			client := redis.NewClient(&redis.Options{Addr: server.Address, PoolSize: s.connections, MaxRetries: -1,
				DisableIdentity: true})
			session := writeSession{close: client.Close, write: func(ctx context.Context, _ int, w *writer) error {
				r, value := w.next()
				set, err := checkAndSet.EvalSha(ctx, client, []string{string(r.name)}, r.token, value).Int()
				if err == nil && set != 1 {
					err = fmt.Errorf("%w: %s", errFenced, r.name)
				}
				return err
			}}
			return session, checkAndSet.Load(ctx, client).Err()
		}}
}
