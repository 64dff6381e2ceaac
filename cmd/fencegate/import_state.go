package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// sentStep is how many lines may be sent between two saves of SentUpTo.
const sentStep = 10_000

// importCounts count the lines by their results.
type importCounts struct {
	Created       int64 `json:"created"`
	Changed       int64 `json:"changed"`
	AppliedBefore int64 `json:"applied_before"`
	Refused       int64 `json:"refused"`
	Unknown       int64 `json:"unknown"`
}

// importProgress is the saved state of an import, and its report.
type importProgress struct {
	// All lines up to Lines have their verdicts. SHA256 is the digest of the input up to there, with each line ended by a
	// line feed and blank lines empty.
	Lines  int64        `json:"lines"`
	SHA256 string       `json:"sha256"`
	Counts importCounts `json:"counts"`
	// SentUpTo is the last line that may have been sent without getting a verdict.
	SentUpTo     int64 `json:"sent_up_to"`
	FencingToken int64 `json:"fencing_token,omitempty"`
	SequenceFrom int64 `json:"sequence_from"`
}

// importState is the progress of an import, and the file that keeps it.
type importState struct {
	importProgress

	path string // "": none
	sum  hash.Hash
	// before is the progress of an earlier run.
	before importProgress
}

// openImportState reads the progress of an earlier run, if there is a file.
func openImportState(path string, defaults importDefaults) (*importState, error) {
	s := &importState{path: path, sum: sha256.New()}
	s.FencingToken, s.SequenceFrom = defaults.token, defaults.sequenceFrom
	if path == "" {
		return s, nil
	}
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		err = s.save()
		return s, err
	}
	if err == nil {
		err = json.Unmarshal(text, &s.before)
	}
	switch {
	case err != nil:
		return nil, fmt.Errorf("--resume %s: %w", path, err)
	case s.before.Lines > 0 && s.before.SequenceFrom != defaults.sequenceFrom && s.before.FencingToken == defaults.token:
		return nil, usagef("--sequence-from is %d, and %s was begun with %d under the same token: lines would get other "+
			"numbers", defaults.sequenceFrom, path, s.before.SequenceFrom)
	}
	s.Counts, s.SentUpTo = s.before.Counts, s.before.SentUpTo
	return s, nil
}

// passBlank passes blank lines up to the one with this number.
func (s *importState) passBlank(number int64) {
	for s.Lines < number {
		s.pass(nil)
	}
}

// pass takes the next line that has its verdict.
func (s *importState) pass(raw []byte) {
	if !isBlank(raw) {
		s.sum.Write(raw)
	}
	s.sum.Write([]byte("\n"))
	s.Lines++
}

// checkBefore returns an error if the lines that were passed are not those of the earlier run.
func (s *importState) checkBefore() error {
	if sum := hex.EncodeToString(s.sum.Sum(nil)); s.Lines > 0 && sum != s.before.SHA256 {
		return fmt.Errorf("--resume %s: the first %d lines are not those that were imported before", s.path, s.Lines)
	}
	return nil
}

// sentBefore says whether an earlier run may have sent the line under the same token.
func (s *importState) sentBefore(line *importLine) bool {
	return line.number <= s.before.SentUpTo && (line.ownToken || s.before.FencingToken == s.FencingToken)
}

// twice returns the lines that may be applied a second time, since an earlier run may have sent them under another
// token; none if first is 0.
func (s *importState) twice() (first, last int64) {
	if s.FencingToken == s.before.FencingToken || s.before.SentUpTo <= s.before.Lines {
		return 0, 0
	}
	return s.before.Lines + 1, s.before.SentUpTo
}

// reserve saves, before a line is sent, that it may be.
func (s *importState) reserve(number int64) error {
	if number <= s.SentUpTo {
		return nil
	}
	s.SentUpTo = number + sentStep - 1
	return s.save()
}

// save replaces the file, whole or not at all.
func (s *importState) save() error {
	if s.path == "" {
		return nil
	}
	s.SHA256 = hex.EncodeToString(s.sum.Sum(nil))
	text, err := json.MarshalIndent(s.importProgress, "", "  ")
	if err != nil {
		return err
	}
	file, err := os.CreateTemp(filepath.Dir(s.path), filepath.Base(s.path)+".*")
	if err != nil {
		return err
	}
	_, err = file.Write(append(text, '\n'))
	err = errors.Join(err, file.Sync(), file.Close())
	if err == nil {
		err = os.Rename(file.Name(), s.path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(file.Name()))
	}
	return nil
}

const (
	progressEvery = 200 * time.Millisecond
	progressWidth = 30
)

// importProgressBar shows the progress of an import at a terminal. One line and one number need no more than a carriage
// return, so it uses no library. It also works where the size is not known.
type importProgressBar struct {
	out   io.Writer // nil: nothing is shown
	size  int64     // of the input; 0: not known
	begun time.Time
	drawn time.Time
	lines int64 // of this run
	from  int64 // the offset where this run began
	bytes int64 // the offset that it has reached
}

func newImportProgress(con *console, wanted bool, size int64) *importProgressBar {
	bar := &importProgressBar{size: size, begun: time.Now()}
	if file, ok := con.err.(*os.File); ok && wanted && !con.format.problems() && isTerminal(file) {
		bar.out = file
	}
	return bar
}

// isTerminal says whether a person reads it.
func isTerminal(file *os.File) bool {
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// skip begins at an offset in the input.
func (b *importProgressBar) skip(offset int64) { b.from, b.bytes = offset, offset }

// advance counts a line that ends at an offset in the input.
func (b *importProgressBar) advance(offset int64) {
	b.lines++
	b.bytes = offset
	if b.out != nil && time.Since(b.drawn) >= progressEvery {
		b.drawn = time.Now()
		b.draw()
	}
}

func (b *importProgressBar) draw() {
	elapsed := time.Since(b.begun)
	rate := float64(b.lines) / max(elapsed.Seconds(), 0.001)
	if b.size == 0 {
		_, _ = fmt.Fprintf(b.out, "\r\x1b[K%d lines, %.0f a second", b.lines, rate)
		return
	}
	share := min(1, float64(b.bytes)/float64(b.size))
	full := int(share * progressWidth)
	left := float64(max(0, b.size-b.bytes)) / float64(max(1, b.bytes-b.from)) // of what this run has done
	_, _ = fmt.Fprintf(b.out, "\r\x1b[K[%s%s] %3.0f %%, %d lines, %.0f a second, %s left",
		strings.Repeat("=", full), strings.Repeat(" ", progressWidth-full), 100*share, b.lines, rate,
		time.Duration(float64(elapsed)*left).Round(time.Second))
}

// clear makes room for a message.
func (b *importProgressBar) clear() {
	if b.out != nil {
		_, _ = fmt.Fprint(b.out, "\r\x1b[K")
	}
}

// end draws the bar a last time, and ends its line.
func (b *importProgressBar) end() {
	if b.out != nil {
		b.draw()
		_, _ = fmt.Fprintln(b.out)
	}
}
