package completion

import (
	"embed"
	"fmt"
	"io"
	"strings"
)

// Shells are those that there is a script for.
const Shells = "bash,zsh,fish"

//go:embed scripts
var scripts embed.FS

// Script returns the script of a shell, one of Shells.
func Script(shell string) (string, error) {
	text, err := scripts.ReadFile("scripts/fencegate." + shell)
	return string(text), err
}

// files is the line that has a script complete the names of files.
const files = ":files"

// Write writes candidates as the scripts read them: one on a line, with the first sentence of its help after a tab.
func Write(w io.Writer, candidates []Candidate) error {
	for _, candidate := range candidates {
		line := candidate.Word
		switch {
		case candidate.Files:
			line = files
		case candidate.Help != "":
			line += "\t" + firstSentence(candidate.Help)
		}
		if _, err := fmt.Fprintln(w, line); err != nil {
			return err
		}
	}
	return nil
}

func firstSentence(help string) string {
	for _, end := range []string{". ", ": ", "; "} {
		help, _, _ = strings.Cut(help, end)
	}
	return strings.TrimSuffix(help, ".")
}
