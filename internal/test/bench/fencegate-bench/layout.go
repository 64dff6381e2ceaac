//go:build unix

package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/fencegate/fencegate/store"
)

// resource is written to under one lease for the whole run.
type resource struct {
	name  store.Name
	token int64
	// index is its number among the resources of its layout: peers keep their own tokens by it.
	index int
	// mu keeps the order in which numbers are taken the order in which writes are submitted, where clients share the
	// resource.
	mu       sync.Mutex
	sequence int64
}

// layout is what is written to: many resources, or few.
type layout struct {
	// prefix is above all of its names.
	prefix     store.Name
	resources  []*resource
	valueBytes int
}

// acquireLayout takes a lease on each of so many resources, for longer than the measurement lasts. If they are to be
// zombies', each lease is then released and granted to another: its token is stale.
func (w *writes) acquireLayout(ctx context.Context, name string, count int, zombies bool) (layout, error) {
	w.Progress("acquiring %d leases", count)
	l := layout{store.Name(w.Prefix + "/" + name), make([]*resource, count), valueBytes}
	var running errgroup.Group
	running.SetLimit(w.Connections)
	for i := range count {
		running.Go(func() error {
			request := store.AcquireRequest{
				Lock: store.Name(fmt.Sprintf("%s/%d", l.prefix, i)), OwnerID: "bench", TTL: store.TTLMax,
			}
			lease, err := w.Store.Acquire(ctx, request)
			if err == nil && zombies {
				err = w.Store.Release(ctx, lease.Ref())
				request.OwnerID = "another"
			}
			if err == nil && zombies {
				_, err = w.Store.Acquire(ctx, request)
			}
			l.resources[i] = &resource{name: request.Lock, token: lease.Token, index: i}
			return err
		})
	}
	return l, running.Wait()
}

// fill makes so many resources with a fence and a record each, and a row of direct's for each, in random order.
func (w *writes) fill(ctx context.Context, count int) (layout, error) {
	prefix := fmt.Sprintf("%s/fences-%d", w.Prefix, count)
	value := make([]byte, valueBytes)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(value)
	token, err := makeFences(ctx, w.Control, prefix+"/", 0, count-1, value)
	if err != nil {
		return layout{}, err
	}
	_, err = w.Control.Exec(ctx, `
		insert into fencegate_bench.direct (resource, key, value)
		select $1 || '/' || i, $2, $3::bytea from generate_series(0, $4::integer - 1) i`, prefix, benchKey, value, count)
	if err != nil {
		return layout{}, fmt.Errorf("make the rows of direct: %w", err)
	}
	l := layout{store.Name(prefix), make([]*resource, count), valueBytes}
	for i := range l.resources {
		l.resources[i] = &resource{name: store.Name(fmt.Sprintf("%s/%d", prefix, i)), token: token, index: i}
	}
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // an order, not a secret
	random.Shuffle(count, func(i, j int) { l.resources[i], l.resources[j] = l.resources[j], l.resources[i] })
	return l, w.Execute(ctx, "vacuum (analyze) fence.fences, fence.records, fencegate_bench.direct", "checkpoint")
}

// shared reports whether several clients must write to one resource.
func (l layout) shared(clients int) bool { return clients > len(l.resources) }

// writer is one client's: it goes round and round its resources, each time with another value.
type writer struct {
	resources []*resource
	turn      int
	value     []byte
	text      []byte // of an array of writes
}

// writers shares the resources out.
func (l layout) writers(clients int) []*writer {
	all := make([]*writer, clients)
	for client := range all {
		n := len(l.resources)
		w := &writer{value: make([]byte, l.valueBytes)}
		if l.shared(clients) {
			w.resources = l.resources[client%n:][:1]
		} else {
			w.resources = l.resources[client*n/clients : (client+1)*n/clients]
		}
		random := rand.NewChaCha8([32]byte{byte(client), byte(client >> 8)})
		_, _ = random.Read(w.value) // what can't be compressed is stored as it is
		all[client] = w
	}
	return all
}

// next returns the next resource in turn, and a new value: a new number is in its first bytes.
func (w *writer) next() (*resource, []byte) {
	r := w.resources[w.turn%len(w.resources)]
	w.turn++
	binary.LittleEndian.PutUint64(w.value, uint64(w.turn))
	return r, w.value
}
