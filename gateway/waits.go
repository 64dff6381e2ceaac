package gateway

import (
	"net/http"
	"strconv"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/store"
)

func (g *Gateway) showWaits(w http.ResponseWriter, r *http.Request) error {
	values, err := query(r, "lock", "limit")
	if err != nil {
		return err
	}
	var lock store.Name
	if text := values.Get("lock"); text != "" {
		if lock, err = parseName("lock", text); err != nil {
			return err
		}
	}
	limit := store.WaitsMax
	if text := values.Get("limit"); text != "" {
		if limit, err = strconv.Atoi(text); err != nil {
			return invalid("limit must be an integer from 1 to %d.", store.WaitsMax)
		}
	}
	ctx, cancel := g.work(r)
	defer cancel()
	graph, err := g.backend.Waits(ctx, lock, limit)
	if err != nil {
		return err
	}
	answer := api.Waits{Waits: make([]api.WaitOf, len(graph.Waits)), Truncated: graph.Truncated}
	for i, wait := range graph.Waits {
		answer.Waits[i] = waitAnswer(wait)
	}
	return answerJSON(w, http.StatusOK, answer)
}

func waitAnswer(wait store.WaitOf) api.WaitOf {
	answer := api.WaitOf{
		OwnerID: wait.OwnerID, Lock: string(wait.Lock), Mode: string(wait.Mode), Scope: string(wait.Scope),
		QueuedAt: api.Time{Time: wait.QueuedAt}, For: make([]api.InTheWay, len(wait.For)),
	}
	for i, other := range wait.For {
		answer.For[i] = api.InTheWay{OwnerID: other.OwnerID, Relation: string(other.Relation), Lock: string(other.Lock)}
	}
	return answer
}
