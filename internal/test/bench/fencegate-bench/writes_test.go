//go:build unix

package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fencegate/fencegate/internal/test/bench/rig"
	"github.com/fencegate/fencegate/internal/test/testenv/peers"
	"github.com/fencegate/fencegate/store"
)

// openWrites is what runs while writes are measured, with one layout of resources and the targets that are named.
func openWrites(t *testing.T, targets ...string) *writes {
	t.Helper()
	w := &writes{Rig: openRig(t, rig.Pace{Connections: 4}),
		config: &writesCmd{Targets: targets, Resources: 20}}
	if err := w.open(t.Context()); err != nil {
		t.Fatal(err)
	}
	return w
}

// inUse opens the target for two clients.
func inUse(t *testing.T, target writeTarget, l layout) (writeSession, []*writer) {
	t.Helper()
	opened, err := target.open(t.Context(), setting{l, 2, 2})
	if err != nil {
		t.Fatalf("%s: %v", target.name, err)
	}
	t.Cleanup(func() {
		if err := opened.close(); err != nil {
			t.Errorf("%s: %v", target.name, err)
		}
	})
	return opened, l.writers(2)
}

// TestTargetsReallyWrite checks that the database has what the clients wrote last, and that the fenced targets refuse a
// stale token: what does not write, or does not look at the fence, would look fast.
func TestTargetsReallyWrite(t *testing.T) {
	w := openWrites(t, "direct", "handmade", "store", "store-unfenced", "http", "http-key", "array")
	unfenced, err := rig.OtherDatabase(w.URL, "fencegate_bench_unfenced")
	if err != nil {
		t.Fatal(err)
	}
	for _, target := range w.targets {
		t.Run(target.name, func(t *testing.T) {
			session, writers := inUse(t, target, w.layouts[0])
			for client, of := range writers {
				for of.turn < 3*len(of.resources) { // rows are made, then replaced
					if err := session.write(t.Context(), client, of); err != nil {
						t.Fatal(err)
					}
				}
				table, url := "fence.records", w.URL
				switch target.name {
				case "direct":
					table = "fencegate_bench.direct"
				case "handmade":
					table = "fencegate_bench.records"
				case "store-unfenced":
					url = unfenced
				}
				checkLatest(t, url, table, target, of)
			}
			raise := func(by int64) {
				for _, resource := range writers[0].resources {
					resource.token += by
				}
			}
			if target.name == "direct" || target.name == "store-unfenced" {
				return
			}
			raise(-1)
			if err := session.write(t.Context(), 0, writers[0]); err == nil {
				t.Error("a stale token was let through")
			}
			raise(+1)
		})
	}
}

// checkLatest sees that the value of the first resource is the one of the client's last turn with it.
func checkLatest(t *testing.T, url, table string, target writeTarget, of *writer) {
	t.Helper()
	db, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close(context.WithoutCancel(t.Context())) }()
	var value []byte
	err = db.QueryRow(t.Context(), "select value from "+table+" where resource = $1 and key = $2",
		string(of.resources[0].name),
		benchKey).Scan(&value)
	if err != nil {
		t.Fatal(err)
	}
	latest := (of.turn-1)/len(of.resources)*len(of.resources) + 1 // the last turn of the first resource, from 1
	got := int(binary.LittleEndian.Uint64(value))
	if got != latest || !bytes.Equal(value[8:], of.value[8:]) {
		t.Errorf("the value is of turn %d, the client's last was %d", got, latest)
	}
}

// TestZombiesAreRefused checks that a refusal is what counts as one.
func TestZombiesAreRefused(t *testing.T) {
	w := openWrites(t, "http")
	zombies := w.through(refused, w.gateway)
	session, writers := inUse(t, zombies, w.layouts[0])
	if err := session.write(t.Context(), 0, writers[0]); !errors.Is(err, errAnswer) {
		t.Errorf("the holder's write counts as refused: %v", err)
	}
	stale, err := w.acquireLayout(t.Context(), "zombies", 3, true)
	if err != nil {
		t.Fatal(err)
	}
	session, writers = inUse(t, zombies, stale)
	for range stale.resources {
		if err := session.write(t.Context(), 0, writers[0]); err != nil {
			t.Fatal(err)
		}
	}
}

// TestPeersWriteAndRefuse checks that a peer has what was written, and refuses it when another has the lock.
func TestPeersWriteAndRefuse(t *testing.T) {
	ctx := t.Context()
	started := func(t *testing.T, server *peers.Peer, err error) string {
		t.Helper()
		skipIfAbsent(t, err)
		t.Cleanup(func() { _ = server.Stop() })
		return server.Address
	}
	t.Run("etcd", func(t *testing.T) {
		server, err := peers.StartEtcd(ctx)
		client, err := connectEtcd(started(t, server, err))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = client.Close() }()
		writesAndRefuses(t, etcdTarget(server), func(r *resource) ([]byte, error) {
			answer, err := client.Get(ctx, string(r.name)+"/"+benchKey)
			if err != nil || len(answer.Kvs) != 1 {
				return nil, fmt.Errorf("%v, %w", answer, err)
			}
			return answer.Kvs[0].Value, nil
		}, func(r *resource) error {
			_, err := client.Put(ctx, lockOf(r), "another")
			return err
		})
	})
	t.Run("zookeeper", func(t *testing.T) {
		server, err := peers.StartZooKeeper(ctx)
		if errors.Is(err, peers.ErrAbsent) {
			t.Skip(err) // on CI, too: scripts/test-deps does not install it
		}
		client, err := connectZooKeeper(started(t, server, err))
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		writesAndRefuses(t, zooKeeperTarget(server), func(r *resource) ([]byte, error) {
			value, _, err := client.Get("/" + string(r.name) + "/data")
			return value, err
		}, func(r *resource) error {
			_, err := client.Set("/"+string(r.name)+"/lock", []byte("another"), -1)
			return err
		})
	})
	t.Run("redis", func(t *testing.T) {
		server, err := peers.StartRedis(ctx, "--appendonly", "yes", "--appendfsync", "always")
		client := connectRedis(started(t, server, err))
		defer client.Close()
		writesAndRefuses(t, redisTarget(server), func(r *resource) ([]byte, error) {
			return client.HGet(ctx, string(r.name), "value").Bytes()
		}, func(r *resource) error { return client.HSet(ctx, string(r.name), "token", r.token+1).Err() })
	})
}

func writesAndRefuses(t *testing.T, target writeTarget, read func(*resource) ([]byte, error),
	supersede func(*resource) error) {
	t.Helper()
	l := layout{prefix: "bench/peers", valueBytes: 100}
	for i := range 4 {
		l.resources = append(l.resources, &resource{name: store.Name(fmt.Sprintf("%s/%d", l.prefix, i)), token: 7, index: i})
	}
	session, writers := inUse(t, target, l)
	inUse(t, target, l) // what the first made is there
	w := writers[1]
	for range w.resources {
		if err := session.write(t.Context(), 1, w); err != nil {
			t.Fatal(err)
		}
	}
	last := w.resources[len(w.resources)-1]
	if value, err := read(last); err != nil || !bytes.Equal(value, w.value) {
		t.Errorf("%s is %x, the client wrote %x: %v", last.name, value, w.value, err)
	}
	if err := supersede(w.resources[0]); err != nil {
		t.Fatal(err)
	}
	if err := session.write(t.Context(), 1, w); !errors.Is(err, errFenced) || !strings.Contains(err.Error(),
		string(w.resources[0].name)) {
		t.Errorf("after another has the lock: %v", err)
	}
}
