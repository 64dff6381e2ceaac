package cluster

import (
	"encoding/binary"
	"encoding/hex"
	"math/bits"
	"regexp"
	"strconv"
	"strings"

	"github.com/fencegate/fencegate/store"
)

var (
	bigintSegment = regexp.MustCompile(`^(0|-?[1-9][0-9]{0,17})$`)
	uuidSegment   = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)
)

// hash is fence.place_hash: what PostgreSQL computes for the first segment of a name, as a value of the type text,
// bigint or uuid, or as a text if it is no such value.
func hash(name store.Name, placeType string) int32 {
	segment, _, _ := strings.Cut(string(name), "/")
	switch {
	case placeType == "bigint" && bigintSegment.MatchString(segment):
		value, _ := strconv.ParseInt(segment, 10, 64)
		half := uint32(value)
		if value >= 0 { // so that an integer has the hash of the same bigint
			half ^= uint32(value >> 32)
		} else {
			half ^= ^uint32(value >> 32)
		}
		return hashBytes(binary.LittleEndian.AppendUint32(nil, half))
	case placeType == "uuid" && uuidSegment.MatchString(segment):
		bytes, _ := hex.DecodeString(strings.ReplaceAll(segment, "-", ""))
		return hashBytes(bytes)
	}
	return hashBytes([]byte(segment))
}

// hashBytes is PostgreSQL's hash_bytes on a little-endian machine: lookup3 of Bob Jenkins (2006, public domain), whose
// initial value and order of the last bytes differ (src/common/hashfn.c). hash_uint32 of PostgreSQL is the same of 4
// bytes.
func hashBytes(key []byte) int32 {
	a := 0x9e3779b9 + uint32(len(key)) + 3923095
	b, c := a, a
	for ; len(key) >= 12; key = key[12:] {
		a += binary.LittleEndian.Uint32(key)
		b += binary.LittleEndian.Uint32(key[4:])
		c += binary.LittleEndian.Uint32(key[8:])
		a -= c
		a ^= bits.RotateLeft32(c, 4)
		c += b
		b -= a
		b ^= bits.RotateLeft32(a, 6)
		a += c
		c -= b
		c ^= bits.RotateLeft32(b, 8)
		b += a
		a -= c
		a ^= bits.RotateLeft32(c, 16)
		c += b
		b -= a
		b ^= bits.RotateLeft32(a, 19)
		a += c
		c -= b
		c ^= bits.RotateLeft32(b, 4)
		b += a
	}
	for i, char := range key {
		switch {
		case i < 4:
			a += uint32(char) << (8 * i)
		case i < 8:
			b += uint32(char) << (8 * (i - 4))
		default: // the lowest byte of c is that of the length
			c += uint32(char) << (8 * (i - 7))
		}
	}
	c ^= b
	c -= bits.RotateLeft32(b, 14)
	a ^= c
	a -= bits.RotateLeft32(c, 11)
	b ^= a
	b -= bits.RotateLeft32(a, 25)
	c ^= b
	c -= bits.RotateLeft32(b, 16)
	a ^= c
	a -= bits.RotateLeft32(c, 4)
	b ^= a
	b -= bits.RotateLeft32(a, 14)
	c ^= b
	c -= bits.RotateLeft32(b, 24)
	return int32(c)
}
