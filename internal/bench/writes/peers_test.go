//go:build unix

package writes

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/fencegate/fencegate/internal/bench/peers"
	"github.com/fencegate/fencegate/store"
)

// skipIfAbsent skips a test whose peer is not here; on CI, where scripts/test-deps installs it, the test fails.
func skipIfAbsent(t *testing.T, err error) {
	t.Helper()
	if errors.Is(err, peers.ErrAbsent) && os.Getenv("CI") != "true" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// peerSetting is for resources that are known to the peer alone.
func peerSetting() setting {
	l := layout{prefix: "bench/peers"}
	for i := range 4 {
		l.resources = append(l.resources, &resource{name: store.Name(fmt.Sprintf("%s/%d", l.prefix, i)), token: 7, index: i})
	}
	return setting{layout: l, clients: 2, connections: 2, valueBytes: 16}
}

// peer is one that runs, and how it is looked into and its lock given to another.
type peer struct {
	open      func(setting) (session, error)
	read      func(*resource) ([]byte, error)
	supersede func(*resource) error
}

// writesAndRefuses: what does not write, or does not look at the fence, would look fast.
func (p peer) writesAndRefuses(t *testing.T) {
	t.Helper()
	s := peerSetting()
	session, err := p.open(s)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := session.close(); err != nil {
			t.Error(err)
		}
	}()
	again, err := p.open(s) // what the first made is there
	if err != nil {
		t.Fatal(err)
	}
	if err := again.close(); err != nil {
		t.Error(err)
	}
	w := s.layout.writers(s.clients, s.valueBytes)[1]
	for range w.resources {
		if err := session.write(t.Context(), 1, w); err != nil {
			t.Fatal(err)
		}
	}
	last := w.resources[len(w.resources)-1]
	if value, err := p.read(last); err != nil || !bytes.Equal(value, w.value) {
		t.Errorf("%s is %x, the client wrote %x: %v", last.name, value, w.value, err)
	}
	if err := p.supersede(w.resources[0]); err != nil {
		t.Fatal(err)
	}
	if err := session.write(t.Context(), 1, w); !errors.Is(err, errFenced) {
		t.Errorf("after another has the lock: %v", err)
	}
}

func TestEtcdWritesAndRefuses(t *testing.T) {
	server, err := peers.StartEtcd(t.Context())
	skipIfAbsent(t, err)
	defer func() { _ = server.Stop() }()
	client, err := server.Connect()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	peer{
		open: func(s setting) (session, error) { return openEtcd(t.Context(), server, s) },
		read: func(r *resource) ([]byte, error) {
			answer, err := client.Get(t.Context(), string(r.name)+"/"+benchKey)
			if err != nil || len(answer.Kvs) != 1 {
				return nil, fmt.Errorf("%v, %w", answer, err)
			}
			return answer.Kvs[0].Value, nil
		},
		supersede: func(r *resource) error {
			_, err := client.Put(t.Context(), lockOf(r), "another")
			return err
		},
	}.writesAndRefuses(t)
}

func TestZooKeeperWritesAndRefuses(t *testing.T) {
	server, err := peers.StartZooKeeper(t.Context())
	if errors.Is(err, peers.ErrAbsent) {
		t.Skip(err) // on CI, too: see checkSkipped
	}
	skipIfAbsent(t, err)
	defer func() { _ = server.Stop() }()
	client, err := server.Connect()
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	peer{
		open: func(s setting) (session, error) { return openZooKeeper(t.Context(), server, s) },
		read: func(r *resource) ([]byte, error) {
			value, _, err := client.Get("/" + string(r.name) + "/" + dataNode)
			return value, err
		},
		supersede: func(r *resource) error {
			_, err := client.Set("/"+string(r.name)+"/"+lockNode, []byte("another"), -1)
			return err
		},
	}.writesAndRefuses(t)
}

func TestRedisWritesAndRefuses(t *testing.T) {
	server, err := peers.StartRedis(t.Context(), "--appendonly", "yes", "--appendfsync", "always")
	skipIfAbsent(t, err)
	defer func() { _ = server.Stop() }()
	client := server.Connect()
	defer client.Close()
	peer{
		open: func(s setting) (session, error) { return openRedis(t.Context(), server, s) },
		read: func(r *resource) ([]byte, error) { return client.HGet(t.Context(), string(r.name), "value").Bytes() },
		supersede: func(r *resource) error {
			return client.HSet(t.Context(), string(r.name), "token", r.token+1).Err()
		},
	}.writesAndRefuses(t)
}
