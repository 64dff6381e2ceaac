package writes

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/fencegate/fencegate/store"
)

// resource is written under one lease for the whole run.
type resource struct {
	name  store.Name
	token int64
	// index is its number among the resources of its layout: peers keep their own tokens by it.
	index int
	// mu keeps the order in which numbers are taken the order in which writes are handed over, where clients share the
	// resource.
	mu       sync.Mutex
	sequence int64
}

// benchKey is the record that is written to.
const benchKey = "value"

// layout is what is written to: many resources, or few.
type layout struct {
	// prefix is above all of its names.
	prefix    store.Name
	resources []*resource
}

// acquireLayout takes a lease on each of so many resources, for longer than the measurement lasts.
func acquireLayout(
	ctx context.Context, acquire func(context.Context, store.Name) (int64, error), prefix store.Name, count, workers int,
) (layout, error) {
	l := layout{prefix: prefix, resources: make([]*resource, count)}
	var running errgroup.Group
	for worker := range workers {
		running.Go(func() error {
			for i := worker; i < count; i += workers {
				name := store.Name(fmt.Sprintf("%s/%d", prefix, i))
				token, err := acquire(ctx, name)
				if err != nil {
					return fmt.Errorf("acquire %s: %w", name, err)
				}
				l.resources[i] = &resource{name: name, token: token, index: i}
			}
			return nil
		})
	}
	return l, running.Wait()
}

// shared reports whether several clients must write to one resource.
func (l layout) shared(clients int) bool { return clients > len(l.resources) }

// writer is one client's: it goes round and round its resources, each time with another value.
type writer struct {
	resources []*resource
	turn      int
	value     []byte
}

// writers shares the resources out.
func (l layout) writers(clients, valueBytes int) []*writer {
	all := make([]*writer, clients)
	for client := range all {
		w := &writer{resources: share(l.resources, client, clients), value: make([]byte, valueBytes)}
		if l.shared(clients) {
			w.resources = l.resources[client%len(l.resources):][:1]
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

// share is the part of the resources that is one client's.
func share(resources []*resource, client, clients int) []*resource {
	return resources[client*len(resources)/clients : (client+1)*len(resources)/clients]
}
