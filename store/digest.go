package store

import (
	"crypto/sha256"
	"encoding/binary"
	"sync"
)

// digestBytes is how much of a SHA-256 is kept with a fence: enough that another content is never taken for a retry.
const digestBytes = 16

// digest is the content of a write: what was asked, not under which token. All gateways compute it alike, whichever version they
// are: a retry may come by another one. Every part is preceded by its length, so that no two contents read the same.
func digest(claims []WriteToken, operations []placedOperation) []byte {
	sum := sha256.New()
	for i := range operations {
		op := &operations[i]
		sum.Write(appendContent(nil, claims[op.claim].Resource, &op.Operation))
		sum.Write(op.Value)
	}
	return sum.Sum(nil)[:digestBytes]
}

// digestWrite is the digest of a single write.
func digestWrite(to *[digestBytes]byte, write *Write) {
	content := contents.Get().(*[]byte)
	*content = appendContent((*content)[:0], write.Resource, &write.Operation)
	if len(write.Value) <= contentBytesMax {
		*content = append(*content, write.Value...)
		sum := sha256.Sum256(*content)
		copy(to[:], sum[:])
	} else {
		sum := sha256.New()
		sum.Write(*content)
		sum.Write(write.Value)
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
