package lockclient

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/fencegate/fencegate/lockclient/api"
)

// WriteOption configures one write of a lease.
type WriteOption func(*writeConfig)

type writeConfig struct {
	resource string
	Write
}

// WithContentType sets the type of the value. Default application/octet-stream. A value of application/json must be
// JSON.
func WithContentType(contentType string) WriteOption {
	return func(c *writeConfig) { c.ContentType = contentType }
}

// IfVersion makes the write ErrVersionMismatch unless the record has this version.
func IfVersion(version int64) WriteOption {
	return func(c *writeConfig) { c.IfMatch = &version }
}

// IfAbsent makes a put ErrVersionMismatch if there is a record.
func IfAbsent() WriteOption {
	return func(c *writeConfig) { c.IfNoneMatch = true }
}

// OnResource writes to a resource below the lock's own, under a Subtree lease.
func OnResource(resource string) WriteOption {
	return func(c *writeConfig) { c.resource = resource }
}

func (c *writeConfig) checkDelete(op string) error {
	if c.IfNoneMatch || c.ContentType != "" {
		return refused(op, api.CodeInvalidRequest, "IfAbsent and WithContentType are options of a put")
	}
	return nil
}

func (l *Lease) writeConfig(opts []WriteOption) writeConfig {
	config := writeConfig{resource: l.granted.Lock}
	for _, opt := range opts {
		opt(&config)
	}
	return config
}

// Put stores a record of the lease's resource, under the lease's token and the next number. It waits for the lease's
// earlier writes. If an answer is lost, the same write is sent again with the same number, until it is answered or ctx
// ends, for some 30 seconds.
//
// Put sends the write even if the lease seems lost, because only the fence knows. ErrTokenStale, ErrLeaseMismatch and
// ErrLeaseExpired say that the caller is not the holder: stop. ErrVersionMismatch is that of a precondition.
//
// An error that also matches [ErrOutcomeUnknown] says that the write may have been applied: no answer came, or one
// was lost and a newer holder has written since. If no answer came, the next write of this lease that is admitted
// settles it: the unanswered write was applied before that, or never will be.
func (l *Lease) Put(ctx context.Context, key string, value []byte, opts ...WriteOption) (api.WriteResult, error) {
	config := l.writeConfig(opts)
	config.Value = value
	return l.numbered(ctx, "put "+config.resource+" "+key, config, func(write Write) (api.WriteResult, error) {
		return l.client.API().Put(ctx, config.resource, key, write)
	})
}

// PutJSON is Put of a value as application/json.
func (l *Lease) PutJSON(ctx context.Context, key string, value any, opts ...WriteOption) (api.WriteResult, error) {
	text, err := jsonText("put "+l.granted.Lock+" "+key, "value", value)
	if err != nil {
		return api.WriteResult{}, err
	}
	return l.Put(ctx, key, text, append([]WriteOption{WithContentType("application/json")}, opts...)...)
}

// Delete removes a record, as Put stores one. It returns ErrNotFound if there is none.
func (l *Lease) Delete(ctx context.Context, key string, opts ...WriteOption) (api.WriteResult, error) {
	config := l.writeConfig(opts)
	op := "delete " + config.resource + " " + key
	if err := config.checkDelete(op); err != nil {
		return api.WriteResult{}, err
	}
	return l.numbered(ctx, op, config, func(write Write) (api.WriteResult, error) {
		return l.client.API().Delete(ctx, config.resource, key, write)
	})
}

// numbered sends one write under the next number, until it is answered.
func (l *Lease) numbered(
	ctx context.Context, op string, config writeConfig, send func(Write) (api.WriteResult, error),
) (result api.WriteResult, err error) {
	err = l.inTurn(ctx, op, func(number api.FencingToken) error {
		config.Token, config.LeaseID = number, l.granted.LeaseID
		result, err = retry(ctx, l.client, untilAnswered, retryable, func() (api.WriteResult, error) {
			return send(config.Write)
		})
		if l.endIfRejected(config.resource, err) {
			l.askForHolder(ctx)
		}
		return err
	})
	return result, err
}

// Numbered calls write with the lease's token and its next number, for a write that does not go through a gateway: a
// transaction that calls fence.guard (see the packages pgxguard and sqlguard), or a request to another system that
// checks fencing tokens. All writes of the lease share the numbers. The others wait until write returns, because a later
// number that arrives first makes the earlier one stale. So write must not wait for another write of the lease.
//
// Numbered returns the error of write. If that is a rejection of this token which says that the lease has ended, it ends
// the lease. If ctx ends before the turn of write, the error is that of Put.
func (l *Lease) Numbered(ctx context.Context, write func(number api.FencingToken) error) error {
	return l.inTurn(ctx, "write under "+l.String(), func(number api.FencingToken) error {
		err := write(number)
		if problem := ProblemOf(err); problem != nil && problem.Token != nil && *problem.Token == number.Token {
			l.endIfRejected(problem.Resource, err)
		}
		return err
	})
}

// inTurn calls write with the next number, while no other write of the lease runs.
func (l *Lease) inTurn(ctx context.Context, op string, write func(api.FencingToken) error) error {
	if err := takeTurn(ctx, l.writing, op); err != nil {
		return err
	}
	defer endTurn(l.writing)
	l.sequence++
	return write(api.FencingToken{Token: l.granted.FencingToken, Sequence: pointer(l.sequence)})
}

// PutOp returns a put for a transaction. An empty contentType is application/octet-stream.
func PutOp(key string, value []byte, contentType string) api.Op {
	return api.Op{
		Op: "put", Key: key, ValueBase64: pointer(base64.StdEncoding.EncodeToString(value)), ContentType: contentType,
	}
}

// DeleteOp returns a delete for a transaction.
func DeleteOp(key string) api.Op { return api.Op{Op: "delete", Key: key} }

// Transaction applies all operations as one atomic change, or none. An operation without a Resource is on the lease's
// own. One with a Table writes to rows of a protected table that belong to its resource; with Rows it inserts or upserts
// up to 10,000 of them by one statement. Numbers, retries and errors are those of Put; Problem.Op is the index of the
// operation that was rejected. ErrConstraintViolation, ErrRowsMismatch and ErrForbidden come from tables.
func (l *Lease) Transaction(ctx context.Context, ops ...api.Op) (api.TransactionResult, error) {
	return l.client.Transact(ctx, []*Lease{l}, ops...)
}

// Transact applies all operations as one atomic change under several leases, or none. Each resource that is written
// must be the lock of one of the leases, or below that of a Subtree lease. An operation without a Resource is on the
// first lease's. Transact waits for these leases' earlier writes. Numbers, retries and errors are those of Lease.Put.
func (c *Client) Transact(ctx context.Context, leases []*Lease, ops ...api.Op) (api.TransactionResult, error) {
	const op = "transaction"
	if len(leases) == 0 {
		return api.TransactionResult{}, refused(op, api.CodeInvalidRequest, "a transaction needs a lease")
	}
	ops = slices.Clone(ops)
	for i := range ops {
		if ops[i].Resource == "" {
			ops[i].Resource = leases[0].granted.Lock
		}
	}
	// All callers lock the leases in one order, which prevents deadlocks.
	inOrder := slices.Clone(leases)
	slices.SortFunc(inOrder, func(a, b *Lease) int { return int(a.order - b.order) })
	inOrder = slices.Compact(inOrder)
	for i, lease := range inOrder {
		if err := takeTurn(ctx, lease.writing, op); err != nil {
			endTurns(inOrder[:i])
			return api.TransactionResult{}, err
		}
	}
	defer endTurns(inOrder)
	body := api.TransactionRequest{Fences: writeTokens(inOrder, ops), Ops: ops}
	result, err := retry(ctx, c, untilAnswered, retryable, func() (api.TransactionResult, error) {
		return c.API().Transaction(ctx, body)
	})
	if problem := ProblemOf(err); problem != nil {
		for _, lease := range inOrder {
			if lease.endIfRejected(problem.Resource, err) {
				lease.askForHolder(ctx)
			}
		}
	}
	return result, err
}

func endTurns(leases []*Lease) {
	for _, lease := range leases {
		endTurn(lease.writing)
	}
}

// writeTokens numbers the transaction on each lease, and returns the token for each resource that is written: that of
// the lease on the nearest name at or above it. A lease whose resource is not written is included, too: all leases
// must admit the transaction.
func writeTokens(leases []*Lease, ops []api.Op) []api.WriteToken {
	var tokens []api.WriteToken
	added := map[string]bool{}
	add := func(resource string, lease *Lease) {
		if lease == nil || added[resource] {
			return
		}
		added[resource] = true
		tokens = append(tokens, api.WriteToken{
			Resource: resource, FencingToken: pointer(lease.granted.FencingToken), Sequence: pointer(lease.sequence),
			LeaseID: pointer(lease.granted.LeaseID),
		})
	}
	for _, lease := range leases {
		lease.sequence++
		add(lease.granted.Lock, lease)
	}
	for _, op := range ops {
		add(op.Resource, nearest(leases, op.Resource))
	}
	return tokens
}

// nearest returns the lease with the longest name that the resource is at or below; nil if there is none.
func nearest(leases []*Lease, resource string) *Lease {
	var found *Lease
	for _, lease := range leases {
		name := lease.granted.Lock
		if resource != name && !strings.HasPrefix(resource, name+"/") {
			continue
		}
		if found == nil || len(name) > len(found.granted.Lock) {
			found = lease
		}
	}
	return found
}

// Get returns a record of the lease's resource, and ErrNotFound if there is none. It is resent until it is answered or
// ctx ends, for some 30 seconds.
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
