package journal

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

// leaseTTLMS is the TTL of a load's leases. It is short enough for abandoned leases to expire while a load lasts.
const leaseTTLMS = 200

// Exercise returns the load of clients that contend for locks, and note in the journal what they see. The caller adds
// the gateways.
func (j *Journal) Exercise(clients int, locks []string, finishWithin time.Duration) load.Exercise {
	return load.Exercise{
		Clients: clients, Locks: locks, Observer: j, TTLMS: leaseTTLMS, FinishWithin: finishWithin,
		Compose: compose, Put: Send,
	}
}

// compose makes a put of one record, or a transaction that puts three.
func compose(random *rand.Rand, number, owner string) (key, value string) {
	key, value = Put(number, owner)
	if random.IntN(2) == 0 {
		value = byTransaction + strings.TrimPrefix(value, byPut)
	}
	return key, value
}

// Put returns the key and the value of a numbered write that puts one record.
func Put(number, owner string) (key, value string) { return Value("put", number, owner) }

// Value returns the key and the value of a numbered write of one record or row. The kind is a word that says how it came.
func Value(kind, number, owner string) (key, value string) {
	return ownPrefix + number, `"` + kind + " " + number + " by " + owner + `"`
}

// kindOf returns what a value begins with: its kind.
func kindOf(value string) string {
	kind, _, _ := strings.Cut(value, " ")
	return kind + " "
}

// Send sends a write by the source that its value names.
func Send(ctx context.Context, to *lockclient.API, resource, key string, w lockclient.Write) (api.WriteResult, error) {
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
