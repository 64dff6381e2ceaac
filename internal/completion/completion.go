// Package completion completes command lines of a program from its kong model.
//
// A script, one for each shell, calls the program with the words of the line and shows what it prints. So the scripts
// know nothing of the commands, and stay valid when these change.
package completion

import (
	"embed"
	"fmt"
	"io"
	"strings"

	"github.com/alecthomas/kong"
)

// Candidate is a word that may replace the last one, or, with Files, the names of files.
type Candidate struct {
	Word, Help string
	Files      bool
}

// Of returns the candidates for the last of the words, which follow the name of the program. That word may be empty.
func Of(root *kong.Node, words []string) []Candidate {
	if len(words) == 0 {
		words = []string{""}
	}
	l := line{command: root}
	for _, word := range words[:len(words)-1] {
		l.read(word)
	}
	word := words[len(words)-1]
	var candidates []Candidate
	for _, candidate := range l.candidates(word) {
		if candidate.Files || strings.HasPrefix(candidate.Word, word) {
			candidates = append(candidates, candidate)
		}
	}
	return candidates
}

// line is a command line as far as it has been read.
type line struct {
	command     *kong.Node
	flag        *kong.Flag // whose value is next
	positionals int
	other       bool // all further words are those of another command
}

func (l *line) read(word string) {
	switch {
	case l.other:
	case word == "=" && l.flag != nil: // bash makes a word of it
	case l.flag != nil:
		l.flag = nil
	case word == "--":
		l.other = true
	case strings.HasPrefix(word, "-") && word != "-":
		if flag, hasValue := l.flagOf(word); flag != nil && !hasValue && !flag.IsBool() {
			l.flag = flag
		}
	case l.child(word) != nil:
		l.command = l.child(word)
	default:
		l.positionals++
		l.other = l.positional() == nil && l.passesOn()
	}
}

// candidates returns all that could be at this place, whatever the word begins with.
func (l *line) candidates(word string) []Candidate {
	switch {
	case l.other:
		return []Candidate{{Files: true}}
	case l.flag != nil && word == "=":
		return nil
	case l.flag != nil:
		return values(l.flag.Value, "")
	case strings.HasPrefix(word, "-"):
		if flag, hasValue := l.flagOf(word); flag != nil && hasValue {
			return values(flag.Value, word[:strings.Index(word, "=")+1])
		}
		return l.flags()
	case len(l.command.Children) > 0:
		return l.commands()
	case l.positional() != nil:
		return values(l.positional(), "")
	}
	return nil
}

// positional is the argument that is next; nil if there is none.
func (l *line) positional() *kong.Positional {
	if l.positionals < len(l.command.Positional) {
		return l.command.Positional[l.positionals]
	}
	return nil
}

// passesOn reports whether the last argument is a command with arguments of its own.
func (l *line) passesOn() bool {
	count := len(l.command.Positional)
	return count > 0 && l.command.Positional[count-1].Passthrough
}

func (l *line) child(name string) *kong.Node {
	for _, child := range l.command.Children {
		if child.Name == name {
			return child
		}
		for _, alias := range child.Aliases {
			if alias == name {
				return child
			}
		}
	}
	return nil
}

// flagOf returns the flag that a word names, --flag, --flag=value or -f; nil if there is none.
func (l *line) flagOf(word string) (flag *kong.Flag, hasValue bool) {
	name, _, hasValue := strings.Cut(word, "=")
	for _, group := range l.command.AllFlags(false) {
		for _, flag := range group {
			if name == "--"+flag.Name || flag.Short != 0 && name == "-"+string(flag.Short) {
				return flag, hasValue
			}
		}
	}
	return nil, false
}

func (l *line) flags() (candidates []Candidate) {
	for _, group := range l.command.AllFlags(true) {
		for _, flag := range group {
			candidates = append(candidates, Candidate{Word: "--" + flag.Name, Help: flag.Help})
			if flag.Tag.Negatable != "" {
				candidates = append(candidates, Candidate{Word: "--no-" + flag.Name, Help: flag.Help})
			}
		}
	}
	return candidates
}

func (l *line) commands() (candidates []Candidate) {
	for _, child := range l.command.Children {
		if !child.Hidden {
			candidates = append(candidates, Candidate{Word: child.Name, Help: child.Help})
		}
	}
	return candidates
}

// values are those of a flag or an argument, each behind a prefix.
func values(value *kong.Value, prefix string) (candidates []Candidate) {
	if value.Tag.Type == "path" || value.Passthrough {
		return []Candidate{{Files: true}}
	}
	for _, word := range value.EnumSlice() {
		if word != "" {
			candidates = append(candidates, Candidate{Word: prefix + word})
		}
	}
	return candidates
}

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
