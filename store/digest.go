package store

import (
	"crypto/sha256"
	"encoding/binary"
	"sync"
)

// Digest identifies the content of a write. It is the part of a SHA-256 that the database keeps with a fence, long
// enough that no other content is taken for a retry.
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
