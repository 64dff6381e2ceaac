//go:build unix

package faults

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/internal/load"
	"github.com/fencegate/fencegate/lockclient"
)

// leaseTTLMS is short enough for abandoned leases to expire while a load lasts.
const leaseTTLMS = 200

// exercise returns the load of clients that contend for locks, and that note in the journal what they see.
func exercise(f *fleet, j *journal, clients int, locks []string, finishWithin time.Duration) load.Exercise {
	return load.Exercise{
		Clients: clients, Locks: locks, Observer: j, TTLMS: leaseTTLMS, FinishWithin: finishWithin,
		Gateway: func(random *rand.Rand) *lockclient.API { return f.at(random.IntN(len(f.members))).API },
		Compose: compose,
		Put:     send,

		RenewalsMayBeLost: f.databaseCrashes,
	}
}

// compose makes a put of one record, or a transaction that puts three.
func compose(random *rand.Rand, number, owner string) (key, value string) {
	kind := byPut
	if random.IntN(2) == 0 {
		kind = byTransaction
	}
	return ownPrefix + number, kind + number + " by " + owner + `"`
}

// put sends a write of the tests' own.
func put(ctx context.Context, g *gateway, w write) (api.WriteResult, error) {
	token := api.FencingToken{Token: w.token, Sequence: &w.sequence}
	return send(ctx, g.API, w.resource, w.key, lockclient.Write{
		Token: token, ContentType: "application/json", Value: []byte(w.value),
	})
}

// send sends a write by the source that its value names.
func send(ctx context.Context, to *lockclient.API, resource, key string, w lockclient.Write) (api.WriteResult, error) {
	if !strings.HasPrefix(string(w.Value), byTransaction) {
		return to.Put(ctx, resource, key, w)
	}
	value := json.RawMessage(w.Value)
	result, err := to.Transaction(ctx, api.TransactionRequest{
		Fences: []api.WriteToken{{Resource: resource, FencingToken: &w.Token.Token, Sequence: w.Token.Sequence}},
		Ops: []api.Op{
			{Op: "put", Resource: resource, Key: key, Value: value},
			{Op: "put", Resource: resource, Key: otherKey(key), Value: value},
			{Op: "put", Resource: resource, Key: lastKey, Value: value},
		},
	})
	if err != nil {
		return api.WriteResult{}, err
	}
	return api.WriteResult{Version: result.Results[0].Version, Replayed: result.Replayed}, nil
}
