// Package auditlog exports the audit log as lines, and verifies its chain of seals, from a gateway or from lines.
//
// A seal has the hash of each of its entries and of the seal before it (fence.seal_audit in the database). So the hash of
// the last seal, the head, stands for the whole log: who has kept it can tell whether any of it was changed.
package auditlog

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/fencegate/fencegate/lockclient/api"
)

// line is a line of an export: an entry, or the seal of the entries in the lines before it.
type line struct {
	Seal     int64   `json:"seal"`
	ID       int64   `json:"id,omitempty"` // 0: it is a seal
	AtUS     int64   `json:"at_us,omitempty"`
	Previous *string `json:"previous,omitempty"`
	Entries  *int    `json:"entries,omitempty"` // of a seal
	Hash     string  `json:"hash,omitempty"`
}

// Append appends the lines of a seal: one for each of its entries, and then its own. The text of an entry is in its line
// as it was hashed.
func Append(out []byte, seal *api.AuditSeal) []byte {
	for i := range seal.Entries {
		out = appendEntry(out, seal.Seal, &seal.Entries[i])
	}
	count := len(seal.Entries)
	return appendLine(out, line{Seal: seal.Seal, AtUS: seal.AtUS, Previous: &seal.Previous, Entries: &count, Hash: seal.Hash})
}

func appendEntry(out []byte, seal int64, entry *api.SealedEntry) []byte {
	out = appendLine(out, line{Seal: seal, ID: entry.ID, AtUS: entry.AtUS, Hash: entry.Hash})
	if entry.Text != "" {
		out = append(append(append(out[:len(out)-2], `,"entry":`...), entry.Text...), "}\n"...)
	}
	return out
}

func appendLine(out []byte, l line) []byte {
	text, err := json.Marshal(l)
	if err != nil {
		panic(err) // it has numbers and texts only
	}
	return append(append(out, text...), '\n')
}

// Read calls each for the seals of an export, and returns how many bytes their lines have. It returns an error for a line
// that is not one of Append, byte for byte, or whose seal is not in the lines after it, and that of each. A line with a
// key twice, for example, may have another value for the next reader than for Go.
func Read(from io.Reader, each func(*api.AuditSeal) error) (read int64, err error) {
	lines := bufio.NewReader(from)
	var seal api.AuditSeal
	var pending int64
	for number := 1; ; number++ {
		text, err := lines.ReadBytes('\n')
		pending += int64(len(text))
		switch {
		case errors.Is(err, io.EOF) && pending > 0:
			return read, ErrCut
		case errors.Is(err, io.EOF):
			return read, nil
		case err != nil:
			return read, err
		}
		var l struct {
			line

			Entry json.RawMessage `json:"entry"`
		}
		err = json.Unmarshal(text, &l)
		entry := api.SealedEntry{ID: l.ID, AtUS: l.AtUS, Hash: l.Hash, Text: string(l.Entry)}
		written := appendLine(nil, l.line)
		if l.ID != 0 {
			written = appendEntry(nil, l.Seal, &entry)
		}
		if err != nil || !bytes.Equal(text, written) || l.Seal < 1 || l.ID == 0 && (l.Previous == nil || l.Entries == nil) {
			return read, fmt.Errorf("line %d is not one of an export", number)
		}
		if l.ID != 0 {
			seal.Seal = l.Seal
			seal.Entries = append(seal.Entries, entry)
			continue
		}
		if seal.Entries != nil && seal.Seal != l.Seal || len(seal.Entries) != *l.Entries {
			return read, fmt.Errorf("line %d has the seal %d of %d entries, and %d lines of seal %d are before it",
				number, l.Seal, *l.Entries, len(seal.Entries), seal.Seal)
		}
		seal.Seal, seal.AtUS, seal.Previous, seal.Hash = l.Seal, l.AtUS, *l.Previous, l.Hash
		if err := each(&seal); err != nil {
			return read, err
		}
		seal = api.AuditSeal{}
		read, pending = read+pending, 0
	}
}

// ErrCut means that an export ends amid the lines of a seal, or in a line.
var ErrCut = errors.New("the export was cut: its last line is not that of a seal")

// Head is a seal and its hash, which somebody has kept: "42:9f86…".
type Head struct {
	Seal int64
	Hash string
}

// String is the text that UnmarshalText reads; "" for none.
func (h Head) String() string {
	if h.Seal == 0 {
		return ""
	}
	return fmt.Sprintf("%d:%s", h.Seal, h.Hash)
}

// UnmarshalText reads a head.
func (h *Head) UnmarshalText(text []byte) error {
	number, hash, _ := strings.Cut(string(text), ":")
	seal, err := strconv.ParseInt(number, 10, 64)
	digits, notHex := hex.DecodeString(hash)
	read := Head{seal, hex.EncodeToString(digits)}
	if err != nil || seal < 1 || notHex != nil || len(digits) != sha256.Size || read.String() != string(text) {
		return fmt.Errorf("%q is not a head, such as 42: and the 64 hexadecimal digits of a hash", text)
	}
	*h = read
	return nil
}

// Continue makes the next seal of an export the head, and returns an error if it does not follow the head. Any seal
// follows none.
func (h *Head) Continue(seal *api.AuditSeal) error {
	if h.Seal != 0 && seal.Previous != h.Hash {
		return h.Lost()
	}
	*h = Head{seal.Seal, seal.Hash}
	return nil
}

// Lost returns the error of an export that can't be continued after the head.
func (h *Head) Lost() error {
	return fmt.Errorf("the log does not continue this export, whose last seal is %d: seals after it were lost or deleted, or "+
		"the log was written anew\nKeep the export, see \"fencegate audit verify --head %s\", and begin another", h.Seal, h)
}

// clockTolerance is how much the clock of the database may be ahead of this one.
const clockTolerance = time.Hour

// Verifier checks the seals of a log, the oldest first.
type Verifier struct {
	// KeptSince is when the oldest entries that must be there were made: now, less the retention.
	KeptSince time.Time
	// Part says that the log may begin with any seal: it is an export.
	Part bool
	// Heads must be in the log.
	Heads []Head
	// Wrong is called for each thing that was changed, with a sentence.
	Wrong func(string)

	First   int64 // the first seal; 0: there was none
	Last    Head  // the last seal
	Present int64 // entries that are as they were sealed
	Expired int64 // entries that were deleted at the end of the retention
	Pruned  int64 // entries that were deleted sooner, as they may be
}

// Add checks the next seal.
func (v *Verifier) Add(seal *api.AuditSeal) {
	if seal.Hash == "" {
		v.wrong("%d entries say that they are of seal %d, which does not exist: the first is entry %d", len(seal.Entries),
			seal.Seal, seal.Entries[0].ID)
		return
	}
	v.checkOrder(seal)
	v.checkEntries(seal)
	for _, head := range v.Heads {
		if head.Seal == seal.Seal && head.Hash != seal.Hash {
			v.wrong("seal %d has another hash than the head that you kept: the log up to it was written anew", seal.Seal)
		}
	}
	if v.First == 0 {
		v.First = seal.Seal
	}
	v.Last = Head{seal.Seal, seal.Hash}
}

// checkOrder checks that the seal follows the one before. At the end of the retention, the oldest seals are deleted, but
// the newest one that is older.
func (v *Verifier) checkOrder(seal *api.AuditSeal) {
	before, missing := v.Last.Seal, seal.Seal-v.Last.Seal-1
	switch {
	case v.First != 0 && missing < 0:
		v.wrong("seal %d comes after seal %d", seal.Seal, before)
	case v.First == 0 && v.Part:
	case missing > 0 && v.isKept(seal.AtUS):
		v.wrong("seals are missing before the end of the retention: %d to %d", before+1, seal.Seal-1)
	case missing == 0 && seal.Previous != v.Last.Hash:
		v.wrong("seal %d is not the one after seal %d: one of them was replaced, or changed with its hash", seal.Seal, before)
	}
}

func (v *Verifier) checkEntries(seal *api.AuditSeal) {
	sealed := fmt.Appendf(nil, "%d %d %s", seal.Seal, seal.AtUS, seal.Previous)
	for _, entry := range seal.Entries {
		if entry.Hash == "" {
			v.wrong("entry %d was added to seal %d after it was made", entry.ID, seal.Seal)
			continue
		}
		at := "-"
		if entry.AtUS != 0 {
			at = strconv.FormatInt(entry.AtUS, 10)
		}
		sealed = fmt.Appendf(sealed, "\n%d %s %s", entry.ID, at, entry.Hash)
		switch {
		case entry.Text != "" && entry.Hash != hashOf([]byte(entry.Text)):
			v.wrong("entry %d was changed after seal %d was made", entry.ID, seal.Seal)
		case entry.Text != "":
			v.Present++
		case entry.AtUS == 0:
			v.Pruned++
		case v.isKept(entry.AtUS):
			v.wrong("entry %d of seal %d is missing: it was deleted before the end of the retention", entry.ID, seal.Seal)
		default:
			v.Expired++
		}
	}
	if hashOf(sealed) != seal.Hash {
		v.wrong("seal %d was changed: its hash is of something else", seal.Seal)
	}
}

// End checks that the log has the heads.
func (v *Verifier) End() {
	for _, head := range v.Heads {
		switch {
		case head.Seal > v.Last.Seal:
			v.wrong("seal %d, the head that you kept, is missing: the log was cut after seal %d", head.Seal, v.Last.Seal)
		case head.Seal < v.First:
			v.wrong("seal %d, the head that you kept, is older than the log, which begins with seal %d: keep a newer one",
				head.Seal, v.First)
		}
	}
}

func (v *Verifier) wrong(format string, args ...any) { v.Wrong(fmt.Sprintf(format, args...)) }

// isKept reports whether what was made at this time must still be there.
func (v *Verifier) isKept(us int64) bool {
	return time.UnixMicro(us).After(v.KeptSince.Add(clockTolerance))
}

func hashOf(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}
