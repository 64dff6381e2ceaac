package writes

import (
	"context"
	"errors"
	"fmt"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"

	"github.com/fencegate/fencegate/internal/bench/peers"
)

// errFenced says that a peer rejected a write as stale: only the writer has the lock, so something is wrong.
var errFenced = errors.New("the write was refused")

func startEtcd(ctx context.Context) (target, string, error) {
	etcd, err := peers.StartEtcd(ctx)
	if err != nil {
		return target{}, "", err
	}
	t := peerTarget(nameEtcd, etcd.Peer, 1, 4, 16, 64)
	t.open = func(ctx context.Context, s setting) (session, error) { return openEtcd(ctx, etcd, s) }
	return t, etcd.Version, nil
}

// peerTarget is a peer that does best with one of these numbers of connections, or with one a client.
func peerTarget(name string, peer *peers.Peer, tuned ...int) target {
	return target{name: name, tuned: tuned, role: rolePeer, pids: []int{peer.PID()}, stop: peer.Stop}
}

// openEtcd makes the clients, each a connection that many may use at once, and the lock keys.
func openEtcd(ctx context.Context, etcd *peers.Etcd, s setting) (session, error) {
	clients := make([]*clientv3.Client, 0, s.connections)
	closeAll := func() error {
		var errs []error
		for _, client := range clients {
			errs = append(errs, client.Close())
		}
		return errors.Join(errs...)
	}
	for range s.connections {
		client, err := etcd.Connect()
		if err != nil {
			return session{}, errors.Join(err, closeAll())
		}
		clients = append(clients, client)
	}
	revisions, err := etcdLocks(ctx, clients[0], s.layout)
	if err != nil {
		return session{}, errors.Join(err, closeAll())
	}
	return session{close: closeAll, write: func(ctx context.Context, client int, w *writer) error {
		r, value := w.next()
		answer, err := clients[client%len(clients)].Txn(ctx).
			If(clientv3.Compare(clientv3.ModRevision(lockOf(r)), "=", revisions[r.index])).
			Then(clientv3.OpPut(string(r.name)+"/"+benchKey, string(value))).
			Commit()
		if err == nil && !answer.Succeeded {
			err = fmt.Errorf("%w: %s", errFenced, r.name)
		}
		return err
	}}, nil
}

func lockOf(r *resource) string { return "locks/" + string(r.name) }

// etcdLocks makes the lock keys that are not there yet, and returns their revisions: those are the tokens.
func etcdLocks(ctx context.Context, client *clientv3.Client, l layout) ([]int64, error) {
	revisions := make([]int64, len(l.resources))
	prefix := "locks/" + string(l.prefix) + "/"
	there, err := client.Get(ctx, prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		return nil, err
	}
	known := map[string]int64{}
	for _, key := range there.Kvs {
		known[string(key.Key)] = key.ModRevision
	}
	var putting errgroup.Group
	putting.SetLimit(setupInFlight)
	for i, r := range l.resources {
		if revision, found := known[lockOf(r)]; found {
			revisions[i] = revision
			continue
		}
		putting.Go(func() error {
			put, err := client.Put(ctx, lockOf(r), strings.Repeat("x", 16))
			if err == nil {
				revisions[i] = put.Header.Revision
			}
			return err
		})
	}
	return revisions, putting.Wait()
}

// setupInFlight is how many requests are under way while a peer's keys are made.
const setupInFlight = 64
