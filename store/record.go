package store

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"mime"
	"sync"
	"time"

	"github.com/google/uuid"
)

// Record is a key and a value stored under a resource.
type Record struct {
	Resource    Name
	Key         Name
	Version     int64
	Token       int64 // of the write that stored it
	Sequence    *int64
	ContentType string
	Value       []byte // nil in lists
	Size        int64  // of the value in bytes
	UpdatedAt   time.Time
}

// RecordQuery selects records of a resource.
type RecordQuery struct {
	Resource Name
	Prefix   string // of the key, any text
	After    string // keys greater than this, in byte order
	Limit    int    // 1 to PageMax

	// ByTime sorts the newest record first, those of the same microsecond in byte order of their keys. Then After is
	// the key of the last record that was seen, and AfterMicros its time, in microseconds since 1970; zero: none was.
	ByTime      bool
	AfterMicros int64
}

// Check returns ErrInvalid if the query is outside its limits.
func (q RecordQuery) Check() error { return checkLimit(q.Limit) }

// Limits of writes. The source of a write bounds the size of its value.
const (
	TokenMax            = 1<<53 - 1
	SequenceMax         = 1<<53 - 1
	ContentTypeBytesMax = 255
)

// Kind is what an operation does to its record.
type Kind string

// The kinds of operations.
const (
	Put    Kind = "put"
	Delete Kind = "delete"
)

// Values of Operation.Expect besides a version.
const (
	ExpectNone int64 = 0  // there must be no record
	ExpectAny  int64 = -1 // there must be a record, of any version
)

// WriteToken is the token under which a resource is written. Token 0 means none.
type WriteToken struct {
	Resource Name
	Token    int64
	Sequence *int64     // nil: the write is not numbered
	LeaseID  *uuid.UUID // nil: not checked, unless the policy demands it
}

// Operation changes one record.
type Operation struct {
	Kind        Kind
	Key         Name
	Value       []byte // of a put; any bytes
	ContentType string // of a put; at most 255 bytes
	// Expect is the version that the record must have, ExpectNone or ExpectAny; nil: no matter.
	Expect *int64
}

// Write is one operation under one token.
type Write struct {
	WriteToken
	Operation
}

// Result is the verdict on a write.
type Result struct {
	Version  int64 // that the write gave
	Created  bool  // the put made a record that was not there
	Replayed bool  // the write was applied before; this is its first answer again
	// Err is nil if the write was admitted; otherwise a RejectedError, or ErrNotFound for the delete of what is not there.
	Err error
}

func (c WriteToken) check() error {
	switch {
	case c.Token < 0 || c.Token > TokenMax:
		return fmt.Errorf("%w: fencing_token is %d, it must be 1 to 2^53-1", ErrInvalid, c.Token)
	case c.Sequence != nil && (*c.Sequence < 0 || *c.Sequence > SequenceMax):
		return fmt.Errorf("%w: sequence is %d, it must be 0 to 2^53-1", ErrInvalid, *c.Sequence)
	}
	return nil
}

func (o Operation) check() error {
	switch {
	case o.Kind != Put && o.Kind != Delete:
		return fmt.Errorf("%w: op is %q, it must be put or delete", ErrInvalid, o.Kind)
	case o.Expect != nil && *o.Expect < ExpectAny:
		return fmt.Errorf("%w: the expected version is %d, versions are positive", ErrInvalid, *o.Expect)
	}
	if o.Kind == Delete {
		return nil
	}
	switch o.ContentType {
	case "application/json", "application/octet-stream", "text/plain":
		return nil // most values; the parser allocates
	}
	if err := checkText("the content type", o.ContentType, 1, ContentTypeBytesMax); err != nil {
		return err
	}
	if _, _, err := mime.ParseMediaType(o.ContentType); err != nil {
		return fmt.Errorf("%w: the content type %q is not one: %w", ErrInvalid, o.ContentType, err)
	}
	return nil
}

// Decision is the database's answer to one write.
type Decision struct {
	Verdict           Verdict
	Reason            string
	Version           int64
	Created, Replayed bool
	// The fence as it stood.
	GrantedToken, LastToken, LastSequence int64
}

// The verdicts that no client sees.
const (
	// VerdictNotFound is no step of the rule: the write was a delete, and there is nothing to delete.
	VerdictNotFound Verdict = "not_found"
	// VerdictBusy says that another session has locked the fence, and that nothing was decided.
	VerdictBusy Verdict = "busy"
)

// Result returns the decision as the result of its write.
func (d *Decision) Result(write *Write) Result {
	switch d.Verdict {
	case Admitted:
		return Result{Version: d.Version, Created: d.Created, Replayed: d.Replayed}
	case VerdictNotFound:
		return Result{Err: fmt.Errorf("%w: there is no record %s of %s", ErrNotFound, write.Key, write.Resource)}
	}
	return Result{Err: &RejectedError{
		Verdict: d.Verdict, Reason: d.Reason, Resource: write.Resource, Key: write.Key,
		Token: write.Token, Sequence: write.Sequence,
		GrantedToken: d.GrantedToken, LastToken: d.LastToken, LastSequence: d.LastSequence, Version: d.Version,
	}}
}

// WriteBatch is a list of writes that are decided in one commit, and the decisions on them. Those to one resource stand
// together, in the order in which they are judged. Its zero value is empty. It is reused, to save allocations.
type WriteBatch struct {
	Writes    []*Write
	Digests   [][]byte   // of the writes
	Decisions []Decision // on the writes, once they were sent
}

// Add appends a write with its digest (see Write.Digest). The batch keeps both pointers until Reset.
func (b *WriteBatch) Add(write *Write, digest *Digest) {
	b.Writes = append(b.Writes, write)
	b.Digests = append(b.Digests, digest[:])
}

// Busy reports whether the write at index was not decided because another session has locked its fence.
func (b *WriteBatch) Busy(index int) bool { return b.Decisions[index].Verdict == VerdictBusy }

// Result returns the verdict on the write at index.
func (b *WriteBatch) Result(index int) Result { return b.Decisions[index].Result(b.Writes[index]) }

// Reset removes all writes. It keeps the memory, but no pointer to a write.
func (b *WriteBatch) Reset() {
	clear(b.Writes)
	clear(b.Digests)
	clear(b.Decisions)
	*b = WriteBatch{b.Writes[:0], b.Digests[:0], b.Decisions[:0]}
}

// Check returns ErrInvalid, naming the field, if the write is outside its limits.
func (w *Write) Check() error { return cmp.Or(w.WriteToken.check(), w.Operation.check()) }

// Digest identifies the content of a write. The database keeps this part of a SHA-256 with a fence. It is long enough
// that no other content passes for a retry.
type Digest [16]byte

// Digest returns the digest of the transaction: of what it changes, not under which tokens. All gateways compute it
// alike, whichever version they are: a retry may come by another one. Every part is preceded by its length, so that no
// two contents read the same.
func (t *Transaction) Digest() []byte {
	sum := sha256.New()
	for i := range t.Operations {
		op := &t.Operations[i]
		if op.Table != nil {
			sum.Write(op.Table.appendContent(appendPart(appendPart(nil, "table"), string(op.Resource))))
			continue
		}
		sum.Write(appendContent(nil, op.Resource, &op.Operation))
		sum.Write(op.Value)
	}
	return sum.Sum(nil)[:len(Digest{})]
}

// Digest writes the digest of the write to the argument.
func (w *Write) Digest(to *Digest) {
	content := contents.Get().(*[]byte)
	*content = appendContent((*content)[:0], w.Resource, &w.Operation)
	if len(w.Value) <= contentBytesMax {
		*content = append(*content, w.Value...)
		sum := sha256.Sum256(*content)
		copy(to[:], sum[:])
	} else {
		sum := sha256.New()
		sum.Write(*content)
		sum.Write(w.Value)
		copy(to[:], sum.Sum(nil))
	}
	contents.Put(content)
}

// contentBytesMax bounds the values that are copied to be digested in one go.
const contentBytesMax = 4 << 10

var contents = sync.Pool{New: func() any { return new([]byte) }}

// appendContent is all that is digested of an operation up to its value, which follows.
func appendContent(to []byte, resource Name, op *Operation) []byte {
	to = appendPart(to, string(op.Kind))
	to = appendPart(to, string(resource))
	to = appendPart(to, string(op.Key))
	to = appendPart(to, op.ContentType)
	if op.Expect == nil {
		to = appendPart(to, "")
	} else {
		to = binary.BigEndian.AppendUint64(to, 8)
		to = binary.BigEndian.AppendUint64(to, uint64(*op.Expect))
	}
	return binary.BigEndian.AppendUint64(to, uint64(len(op.Value)))
}

func appendPart(to []byte, part string) []byte {
	return append(binary.BigEndian.AppendUint64(to, uint64(len(part))), part...)
}

// Fence is the row that decides which writes to a resource pass.
type Fence struct {
	Resource     Name
	GrantedToken int64 // the newest granted on the name, or on a subtree that it is in
	Open         bool  // whether that grant may still write
	LastToken    int64 // of the last accepted write, like LastSequence
	LastSequence int64
	Policy       Policy // what holds for the resource
}

// Accepted is the number of a write that a fence accepted: its token, and its sequence or 0.
type Accepted struct{ Token, Sequence int64 }

// Check returns ErrInvalid, naming the field, if the number is outside its limits.
func (a Accepted) Check() error {
	switch {
	case a.Token < 0 || a.Token > TokenMax:
		return fmt.Errorf("%w: last_token is %d, it must be 0 to 2^53-1", ErrInvalid, a.Token)
	case a.Sequence < 0 || a.Sequence > TokenMax:
		return fmt.Errorf("%w: last_sequence is %d, it must be 0 to 2^53-1", ErrInvalid, a.Sequence)
	}
	return nil
}

// Limits of a transaction.
const (
	WriteTokensMax = 64
	OperationsMax  = 1000
)

// Transaction is one atomic change under one or more tokens. Sent again with the same numbered tokens and the same
// operations it is a replay, if it is one on each of its fences.
type Transaction struct {
	Tokens     []WriteToken // 1 to 64, each resource once
	Operations []ResourceOperation
}

// ResourceOperation is an operation on a record of one of the resources of the tokens, each record once, or on rows of
// a table that belong to one. A transaction has 1 to 1000.
type ResourceOperation struct {
	Resource Name
	Operation
	// Table, if not nil, is the operation, in place of Operation.
	Table *TableOperation
}

// TransactionResult has what the operations did, in their order.
type TransactionResult struct {
	Versions []int64       // that the operations gave; 0 for those on tables
	Tables   []TableResult // of the operations on tables; nil for a replay, whose rows are not remembered
	Replayed bool
}

// Check returns the index of each operation's token, from 1. It returns ErrInvalid, or a RejectedError for an operation
// on a resource without a token.
func (t *Transaction) Check() ([]int32, error) {
	if len(t.Tokens) < 1 || len(t.Tokens) > WriteTokensMax {
		return nil, fmt.Errorf("%w: there are %d fences, a transaction has 1 to %d",
			ErrInvalid, len(t.Tokens), WriteTokensMax)
	}
	if len(t.Operations) < 1 || len(t.Operations) > OperationsMax {
		return nil, fmt.Errorf("%w: there are %d ops, a transaction has 1 to %d",
			ErrInvalid, len(t.Operations), OperationsMax)
	}
	tokenOf := map[Name]int32{}
	for i, token := range t.Tokens {
		if err := token.check(); err != nil {
			return nil, fmt.Errorf("fences[%d]: %w", i, err)
		}
		if _, twice := tokenOf[token.Resource]; twice {
			return nil, fmt.Errorf("%w: fences[%d]: resource %s is there twice", ErrInvalid, i, token.Resource)
		}
		tokenOf[token.Resource] = int32(i) + 1
	}

	type record struct{ resource, key Name }
	seen := map[record]bool{}
	ofTokens := make([]int32, len(t.Operations))
	for i, op := range t.Operations {
		if err := op.check(); err != nil {
			return nil, fmt.Errorf("ops[%d]: %w", i, err)
		}
		token, there := tokenOf[op.Resource]
		if !there {
			return nil, &RejectedError{Verdict: VerdictTokenRequired, Resource: op.Resource, Key: op.Key, Op: &i}
		}
		ofTokens[i] = token
		if op.Table != nil {
			continue
		}
		if seen[record{op.Resource, op.Key}] {
			return nil, fmt.Errorf("%w: ops[%d]: record %s of %s is changed twice", ErrInvalid, i, op.Key, op.Resource)
		}
		seen[record{op.Resource, op.Key}] = true
	}
	return ofTokens, nil
}

func (o ResourceOperation) check() error {
	if o.Table != nil {
		return o.Table.check()
	}
	return o.Operation.check()
}
