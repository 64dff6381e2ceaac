// Package apikey makes and reads the texts of API keys:
//
//	fgk_Xk3b9QmZ7d_4tGm…Rw8x1K
//
// The first part is the same for all, so that scanners for secrets find keys. The second is the id, which is no secret.
// The third is 43 random characters, which are 256 bits, and a checksum of 6 characters over all before it. Of a key,
// the database has the id and a digest only.
package apikey

import (
	"crypto/rand"
	"crypto/sha256"
	"hash/crc32"
	"strings"
)

const (
	// Prefix begins every key.
	Prefix = "fgk_"
	// IDLength is the length of an id.
	IDLength = 10

	secretLength   = 43
	checksumLength = 6
	length         = len(Prefix) + IDLength + 1 + secretLength + checksumLength
	alphabet       = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
)

// Digest is the SHA-256 of a key. A slow hash would add nothing: nobody can guess 256 random bits.
type Digest [sha256.Size]byte

// New makes a key.
func New() (text, id string, digest Digest) {
	id = random(IDLength)
	text = Prefix + id + "_" + random(secretLength)
	sum := checksum([]byte(text))
	text += string(sum[:])
	return text, id, sha256.Sum256([]byte(text))
}

// Parse reads a key. It reports whether the text has the form of one, with the right checksum.
func Parse(text string) (id string, digest Digest, ok bool) {
	const secretAt = len(Prefix) + IDLength + 1
	if len(text) != length || !strings.HasPrefix(text, Prefix) || text[secretAt-1] != '_' {
		return "", Digest{}, false
	}
	var bytes [length]byte
	copy(bytes[:], text)
	id = text[len(Prefix) : secretAt-1]
	if !IsID(id) || checksum(bytes[:length-checksumLength]) != [checksumLength]byte(bytes[length-checksumLength:]) {
		return "", Digest{}, false
	}
	return id, sha256.Sum256(bytes[:]), true
}

// IsID reports whether a text has the form of an id.
func IsID(text string) bool {
	for _, r := range text {
		if !strings.ContainsRune(alphabet, r) {
			return false
		}
	}
	return len(text) == IDLength
}

// random returns characters that are all equally likely.
func random(characters int) string {
	const fair = 256 - 256%len(alphabet) // greater bytes would make the first characters more likely
	text := make([]byte, 0, characters)
	var bytes [64]byte
	for {
		_, _ = rand.Read(bytes[:]) // it never fails
		for _, b := range bytes {
			if int(b) >= fair {
				continue
			}
			if text = append(text, alphabet[int(b)%len(alphabet)]); len(text) == characters {
				return string(text)
			}
		}
	}
}

// checksum is the CRC-32 of a text, so that a program can tell a key that was mistyped or cut off from one that was
// revoked.
func checksum(text []byte) (digits [checksumLength]byte) {
	sum := crc32.ChecksumIEEE(text)
	for i := range digits {
		digits[checksumLength-1-i] = alphabet[sum%uint32(len(alphabet))]
		sum /= uint32(len(alphabet))
	}
	return digits
}
