package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io/fs"
	"os"
	"path/filepath"
)

// sentStep is how many lines may be sent after the state was kept, and before it is kept again.
const sentStep = 10_000

// importCounts are what became of the lines.
type importCounts struct {
	Created       int64 `json:"created"`
	Changed       int64 `json:"changed"`
	AppliedBefore int64 `json:"applied_before"`
	Refused       int64 `json:"refused"`
	Unknown       int64 `json:"unknown"`
}

// importProgress is what is kept of an import, and its answer.
type importProgress struct {
	// Lines is up to which line all have their verdicts; the input up to there has this SHA-256, line feeds counted as they are needed.
	Lines  int64        `json:"lines"`
	SHA256 string       `json:"sha256"`
	Counts importCounts `json:"counts"`
	// SentUpTo is the line up to which some may have been sent, and have no verdict.
	SentUpTo     int64 `json:"sent_up_to"`
	FencingToken int64 `json:"fencing_token,omitempty"`
	SequenceFrom int64 `json:"sequence_from"`
}

// importState is how far an import has come, and the file in which that is kept.
type importState struct {
	importProgress

	path string // "": it is not kept
	sum  hash.Hash
	// before is what an earlier run has kept.
	before importProgress
}

// openImportState reads what an earlier run has kept, if there is a file.
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
		return nil, usagef("--sequence-from is %d, and %s was begun with %d under the same token: lines would get other numbers",
			defaults.sequenceFrom, path, s.before.SequenceFrom)
	}
	s.Counts, s.SentUpTo = s.before.Counts, s.before.SentUpTo
	return s, nil
}

// pass takes a line that has its verdict, in the order of the lines.
func (s *importState) pass(raw []byte) {
	s.sum.Write(raw)
	s.sum.Write([]byte("\n"))
	s.Lines++
}

// checkBefore says whether the lines that were passed are those of the run before.
func (s *importState) checkBefore() error {
	if sum := hex.EncodeToString(s.sum.Sum(nil)); s.Lines > 0 && sum != s.before.SHA256 {
		return fmt.Errorf("--resume %s: the first %d lines are not those that were imported before", s.path, s.Lines)
	}
	return nil
}

// sentBefore says whether a run before may have sent the line, under the same token.
func (s *importState) sentBefore(line *importLine) bool {
	return line.number <= s.before.SentUpTo && (line.ownToken || s.before.FencingToken == s.FencingToken)
}

// twice is which lines may be applied a second time, since a run before may have sent them under another token; none if first is 0.
func (s *importState) twice() (first, last int64) {
	if s.FencingToken == s.before.FencingToken || s.before.SentUpTo <= s.before.Lines {
		return 0, 0
	}
	return s.before.Lines + 1, s.before.SentUpTo
}

// refusals is how many lines were not applied for certain.
func (s *importState) refusals() int64 { return s.Counts.Refused + s.Counts.Unknown }

// reserve keeps, before a line is sent, that it may be.
func (s *importState) reserve(number int64) error {
	if number <= s.SentUpTo {
		return nil
	}
	s.SentUpTo = number + sentStep - 1
	return s.save()
}

// save keeps the state, whole or not at all.
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
