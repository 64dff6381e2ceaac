package lockclient

import (
	"context"
	"encoding/base64"
	"slices"
	"strings"

	"github.com/fencegate/fencegate/gateway/api"
)

// WriteOption changes one write of a lease.
type WriteOption func(*writeConfig)

type writeConfig struct {
	resource    string
	contentType string
	ifVersion   *int64
	ifAbsent    bool
}

// WithContentType sets the type of the value. Default application/octet-stream. Values of application/json must be JSON.
func WithContentType(contentType string) WriteOption {
	return func(c *writeConfig) { c.contentType = contentType }
}

// IfVersion demands that the record has this version; otherwise the write is ErrVersionMismatch.
func IfVersion(version int64) WriteOption {
	return func(c *writeConfig) { c.ifVersion = &version }
}

// IfAbsent demands of a put that there is no record; otherwise it is ErrVersionMismatch.
func IfAbsent() WriteOption {
	return func(c *writeConfig) { c.ifAbsent = true }
}

// OnResource writes to another resource than the lock's own: one below it, under a Subtree lease.
func OnResource(resource string) WriteOption {
	return func(c *writeConfig) { c.resource = resource }
}

func (l *Lease) writeConfig(opts []WriteOption) writeConfig {
	config := writeConfig{resource: l.granted.Lock}
	for _, opt := range opts {
		opt(&config)
	}
	return config
}

// Put stores a record of the lease's resource, under its token and the next number: 34.1, 34.2, …
//
// Writes of one lease are sent one at a time, in the order of their numbers, whoever calls: a later number that arrived first would shut
// the earlier one out. Where an answer is lost the same write is sent again, with the same number, until it is answered or ctx
// ends, for some 30 seconds: it is applied once, however often it arrives.
//
// It is sent even if the lease is believed to be lost, because only the fence knows. Of its errors, ErrTokenStale, ErrLeaseMismatch and
// ErrLeaseExpired say that the caller is not the holder: stop. ErrVersionMismatch is that of a precondition.
//
// Where the error is also [ErrOutcomeUnknown], nobody can tell whether it was applied: no answer came, or one was lost and a newer holder
// has written before it was asked for again. An unanswered write is settled by the next write of this lease that is admitted: from then
// on it was applied before, or never will be.
func (l *Lease) Put(ctx context.Context, key string, value []byte, opts ...WriteOption) (api.WriteResult, error) {
	config := l.writeConfig(opts)
	var result api.WriteResult
	err := l.numbered(ctx, "put "+config.resource+" "+key, config.resource, func(token api.FencingToken) (err error) {
		result, err = l.client.API().Put(ctx, config.resource, key, Write{
			Token: token, LeaseID: l.granted.LeaseID, ContentType: config.contentType, Value: value,
			IfMatch: config.ifVersion, IfNoneMatch: config.ifAbsent,
		})
		return err
	})
	return result, err
}

// PutJSON stores a value as application/json. It is otherwise like Put.
func (l *Lease) PutJSON(ctx context.Context, key string, value any, opts ...WriteOption) (api.WriteResult, error) {
	text, err := jsonBody("put "+l.granted.Lock+" "+key, value)
	if err != nil {
		return api.WriteResult{}, err
	}
	opts = append([]WriteOption{WithContentType("application/json")}, opts...)
	return l.Put(ctx, key, []byte(strings.TrimSuffix(string(text), "\n")), opts...)
}

// Delete removes a record, as Put stores one. It returns ErrNotFound if there is none.
func (l *Lease) Delete(ctx context.Context, key string, opts ...WriteOption) (api.WriteResult, error) {
	config := l.writeConfig(opts)
	op := "delete " + config.resource + " " + key
	if config.ifAbsent || config.contentType != "" {
		return api.WriteResult{}, refused(op, api.CodeInvalidRequest, "IfAbsent and WithContentType are options of a put")
	}
	var result api.WriteResult
	err := l.numbered(ctx, op, config.resource, func(token api.FencingToken) (err error) {
		result, err = l.client.API().Delete(ctx, config.resource, key, Removal{
			Token: token, LeaseID: l.granted.LeaseID, IfMatch: config.ifVersion,
		})
		return err
	})
	return result, err
}

// numbered sends one write under the next number, until it is answered.
func (l *Lease) numbered(ctx context.Context, op, resource string, send func(api.FencingToken) error) error {
	if err := enter(ctx, l.writing, op); err != nil {
		return err
	}
	defer leave(l.writing)
	l.sequence++
	sequence := l.sequence
	err := l.client.insist(ctx, insistence, unanswered, func() error {
		return send(api.FencingToken{Token: l.granted.FencingToken, Sequence: &sequence})
	})
	l.heed(resource, err)
	return err
}

// PutOp is a put for a transaction. An empty contentType is application/octet-stream.
func PutOp(key string, value []byte, contentType string) api.Op {
	text := base64.StdEncoding.EncodeToString(value)
	return api.Op{Op: "put", Key: key, ValueBase64: &text, ContentType: contentType}
}

// DeleteOp is a delete for a transaction.
func DeleteOp(key string) api.Op { return api.Op{Op: "delete", Key: key} }

// Transaction makes one atomic change: all operations, or none. An operation without a Resource is on the lease's own. Numbering,
// repetition and errors are those of Put; Problem.Op is the place of the operation that was refused.
func (l *Lease) Transaction(ctx context.Context, ops ...api.Op) (api.TransactionResult, error) {
	return l.client.Transact(ctx, []*Lease{l}, ops...)
}

// Transact makes one atomic change under several leases: all operations, or none. Each resource that is written must be the lock of one
// of the leases, or below that of a Subtree lease; an operation without a Resource is on the first lease's. It waits for the
// writes of these leases that are under way. Numbering, repetition and errors are those of Lease.Put.
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
	// All callers take the leases in one order, so none waits for another in a circle.
	inOrder := slices.Clone(leases)
	slices.SortFunc(inOrder, func(a, b *Lease) int { return int(a.place - b.place) })
	inOrder = slices.Compact(inOrder)
	for i, lease := range inOrder {
		if err := enter(ctx, lease.writing, op); err != nil {
			leaveAll(inOrder[:i])
			return api.TransactionResult{}, err
		}
	}
	defer leaveAll(inOrder)
	body := api.TransactionRequest{Fences: claims(inOrder, ops), Ops: ops}
	var result api.TransactionResult
	err := c.insist(ctx, insistence, unanswered, func() (err error) {
		result, err = c.API().Transaction(ctx, body)
		return err
	})
	if problem := ProblemOf(err); problem != nil {
		for _, lease := range inOrder {
			lease.heed(problem.Resource, err)
		}
	}
	return result, err
}

func leaveAll(leases []*Lease) {
	for _, lease := range leases {
		leave(lease.writing)
	}
}

// claims numbers the transaction on each lease, and says under which each resource is written: the lease on the nearest name above it. A
// lease whose resource isn't written claims it nevertheless: the transaction is to pass under all of them.
func claims(leases []*Lease, ops []api.Op) []api.WriteToken {
	var fences []api.WriteToken
	claimed := map[string]bool{}
	claim := func(resource string, lease *Lease) {
		if lease == nil || claimed[resource] {
			return
		}
		claimed[resource] = true
		token, sequence, id := lease.granted.FencingToken, lease.sequence, lease.granted.LeaseID
		fences = append(fences, api.WriteToken{Resource: resource, FencingToken: &token, Sequence: &sequence, LeaseID: &id})
	}
	for _, lease := range leases {
		lease.sequence++
		claim(lease.granted.Lock, lease)
	}
	for _, op := range ops {
		claim(op.Resource, nearest(leases, op.Resource))
	}
	return fences
}

// nearest is the lease whose name is the longest that the resource is at or below; nil if there is none.
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
