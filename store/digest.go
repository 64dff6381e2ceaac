package store

import (
	"crypto/sha256"
	"encoding/binary"
	"hash"
)

// digestBytes is how much of a SHA-256 is kept with a fence: enough that another content is never taken for a retry.
const digestBytes = 16

// digest is the content of a write: what was asked, not under which token. All gateways compute it alike, whichever version they
// are: a retry may come by another one. Every part is preceded by its length, so that no two contents read the same.
func digest(claims []Claim, operations []placedOperation) []byte {
	sum := sha256.New()
	for _, op := range operations {
		hashPart(sum, []byte(op.Kind))
		hashPart(sum, []byte(claims[op.claim].Resource))
		hashPart(sum, []byte(op.Key))
		hashPart(sum, []byte(op.ContentType))
		if op.Expect == nil {
			hashPart(sum, nil)
		} else {
			hashPart(sum, binary.BigEndian.AppendUint64(nil, uint64(*op.Expect)))
		}
		hashPart(sum, op.Value)
	}
	return sum.Sum(nil)[:digestBytes]
}

func hashPart(sum hash.Hash, part []byte) {
	var length [8]byte
	binary.BigEndian.PutUint64(length[:], uint64(len(part)))
	sum.Write(length[:])
	sum.Write(part)
}
