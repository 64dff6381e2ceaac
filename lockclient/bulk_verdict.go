package lockclient

import (
	"encoding/json"

	"github.com/fencegate/fencegate/gateway/api"
)

// storedByMax bounds the memory of storedBy.
const storedByMax = 10_000

// judge takes a verdict. It returns false if the write is to be sent again: unavailable is no result.
func (b *BulkWriter) judge(w *PendingWrite, verdict api.BulkVerdict) (settled bool) {
	if verdict.Code == "" {
		b.settle(w, verdict, nil)
		return true
	}
	refusal := &Error{Op: w.op, Problem: verdict.Problem()}
	err := remember(refusal, w.doubt)
	if retryable(err) {
		if refusal.Problem.Outcome == api.OutcomeUnknown && w.doubt == nil {
			w.doubt = refusal
		}
		return false
	}
	if w.doubt != nil && passed(verdict) && b.stored(w, verdict) {
		replayed := true
		b.settle(w, api.BulkVerdict{
			Status: 200, FencingToken: verdict.Token, Sequence: verdict.Sequence, Replayed: &replayed,
		}, nil)
		return true
	}
	if b.lease != nil {
		b.lease.endIfRejected(w.resource, err)
	}
	b.settle(w, verdict, err)
	return true
}

// passed says that the fence's last accepted write is a later one of the same lease. That proves nothing about this
// write: a policy that changed in between may have rejected it.
func passed(v api.BulkVerdict) bool {
	return v.Code == api.CodeTokenStale && v.Token != nil && v.Sequence != nil && v.LastToken != nil &&
		v.LastSequence != nil && *v.LastToken == *v.Token && *v.LastSequence > *v.Sequence
}

// storedRecord is a record, and the token of the write that stored it.
type storedRecord struct {
	resource, key string
	token         int64
}

// stored reports whether this write, or a later one of the same lease, stored the record. Only a put without a
// precondition is judged so: it counts as applied, since no reader can have seen that it was not. It counts once that is
// durable: a failover could still take back what the gateway has in doubt.
func (b *BulkWriter) stored(w *PendingWrite, verdict api.BulkVerdict) bool {
	var line struct {
		Op        string           `json:"op"`
		Key       string           `json:"key"`
		IfVersion *json.RawMessage `json:"if_version"`
	}
	if json.Unmarshal(w.line, &line) != nil || line.Op != "put" || line.IfVersion != nil {
		return false
	}
	record := storedRecord{verdict.Resource, line.Key, *verdict.Token}
	if b.storedBy[record] >= *verdict.Sequence {
		return true
	}
	there, err := retry(b.ctx, b.client, untilAnswered, retryable, func() (Record, error) {
		return b.client.API().Get(b.ctx, record.resource, record.key, Durable())
	})
	by := there.Token
	if err != nil || by.Token != record.token || by.Sequence == nil {
		return false
	}
	if len(b.storedBy) >= storedByMax || b.storedBy == nil {
		b.storedBy = map[storedRecord]int64{}
	}
	b.storedBy[record] = *by.Sequence
	return *by.Sequence >= *verdict.Sequence
}
