package cluster

import (
	"context"
	"slices"

	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/postgres"
)

// placement says at which node each name is to be.
type placement struct {
	placeType string
	ranges    []placed          // in the order of their hashes, without a gap
	addresses map[string]string // of the nodes
}

// placed are names by their hashes, and their node.
type placed struct {
	first, last int64
	node        string
}

// readPlacement reads the placement from the coordinator.
func readPlacement(ctx context.Context, coordinator *postgres.Store) (*placement, error) {
	p := &placement{addresses: map[string]string{}}
	var err error
	if p.placeType, err = coordinator.PlaceType(ctx); err != nil {
		return nil, err
	}
	err = coordinator.Placements(ctx, func(first, last int64, node, address string) {
		p.ranges = append(p.ranges, placed{first, last, node})
		p.addresses[node] = address
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(p.ranges, func(a, b placed) int { return int(min(1, max(-1, a.first-b.first))) })
	return p, nil
}

// node returns the node of a name; "" if the placement has none.
func (p *placement) node(name store.Name) string {
	at := int64(hash(name, p.placeType))
	i, found := slices.BinarySearchFunc(p.ranges, at, func(r placed, at int64) int {
		switch {
		case r.last < at:
			return -1
		case r.first > at:
			return 1
		}
		return 0
	})
	if !found {
		return ""
	}
	return p.ranges[i].node
}
