package lockclient

import (
	"context"
	"encoding/json"
	"fmt"
)

// Get returns a record of the lease's resource, and ErrNotFound if there is none. It is resent until it is answered or
// ctx ends, for some 30 seconds. It does not wait for the writes of a [Pipeline]: call Flush before.
//
// A read is not fenced: a former holder, too, gets the newest record. The fence rejects what it writes after that. For a
// record of another resource, see [API.Get].
func (l *Lease) Get(ctx context.Context, key string, opts ...ReadOption) (Record, error) {
	return retry(ctx, l.client, untilAnswered, retryable, func() (Record, error) {
		return l.client.API().Get(ctx, l.granted.Lock, key, opts...)
	})
}

// GetJSON is Get of a value that is JSON, as PutJSON stores it. It decodes the value into into, a pointer, and returns
// the error of encoding/json if it can't. The record's Version is what [IfVersion] takes.
func (l *Lease) GetJSON(ctx context.Context, key string, into any, opts ...ReadOption) (Record, error) {
	record, err := l.Get(ctx, key, opts...)
	if err != nil {
		return Record{}, err
	}
	if err := json.Unmarshal(record.Value, into); err != nil {
		return Record{}, fmt.Errorf("get %s %s: the value is not the JSON that was expected: %w", l.granted.Lock, key, err)
	}
	return record, nil
}
