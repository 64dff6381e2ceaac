package gateway

import (
	"context"
	"net/http"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/store"
)

// getWaits answers the wait-for graph.
func (g *Gateway) getWaits(ctx context.Context, r *http.Request) (any, error) {
	values, err := query(r, "lock", "limit")
	if err != nil {
		return nil, err
	}
	parameters := page{Values: values}
	lock, err := parameters.name("lock")
	if err != nil {
		return nil, err
	}
	limit, err := parameters.integer("limit", 1, store.WaitsMax, store.WaitsMax)
	if err != nil {
		return nil, err
	}
	graph, err := g.backend.Waits(ctx, lock, limit)
	return api.Waits{Waits: convert(graph.Waits, waitAnswer), Truncated: graph.Truncated}, err
}

func waitAnswer(wait store.WaitOf) api.WaitOf {
	return api.WaitOf{
		OwnerID: wait.OwnerID, Lock: string(wait.Lock), Mode: string(wait.Mode), Scope: string(wait.Scope),
		QueuedAt: api.Time{Time: wait.QueuedAt}, For: convert(wait.For, blockerAnswer),
	}
}

func blockerAnswer(blocker store.InTheWay) api.InTheWay {
	return api.InTheWay{
		OwnerID: blocker.OwnerID, Relation: string(blocker.Relation), Lock: string(blocker.Lock),
	}
}
