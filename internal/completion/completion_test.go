package completion

import (
	"io"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
)

type program struct {
	Lock struct {
		Acquire struct {
			Name   string `arg:""`
			Output string `enum:"table,json" default:"table" short:"o" help:"Form. More."`
			Wait   bool   `negatable:"" help:"Wait."`
			TTL    string `default:"1s"`
			File   string `type:"path"`
			Secret string `hidden:""`
		} `cmd:"" help:"Acquire it: now."`
		Ls struct{} `cmd:"" aliases:"list" help:"List."`
	} `cmd:""`
	Run struct {
		Shell   string   `enum:"sh,bash" arg:""`
		Command []string `arg:"" passthrough:""`
	} `cmd:""`
	Hidden struct{} `cmd:"" hidden:""`
}

// The candidates for the last word of a line depend on the command, the flag and the place.
func TestCandidates(t *testing.T) {
	parser, err := kong.New(&program{}, kong.Writers(io.Discard, io.Discard))
	if err != nil {
		t.Fatal(err)
	}
	for line, want := range map[string]string{
		"":                                  "lock run",
		"l":                                 "lock",
		"lock ":                             "acquire ls",
		"lock list":                         "",
		"lock acquire ":                     "",
		"lock acquire -":                    "--help --output --wait --no-wait --ttl --file",
		"lock acquire --no":                 "--no-wait",
		"lock acquire a --output ":          "table json",
		"lock acquire a -o j":               "json",
		"lock acquire a --output = t":       "table",
		"lock acquire a --output =":         "",
		"lock acquire --output=j":           "--output=json",
		"lock acquire --output=json --wait": "--wait",
		"lock acquire --wait --ou":          "--output",
		"lock acquire --ttl ":               "",
		"lock acquire --ttl --o --ou":       "--output",
		"lock acquire --file ":              ":files",
		"lock acquire --secr":               "",
		"run ":                              "sh bash",
		"run sh ":                           ":files",
		"run sh -":                          "--help",
		"run sh ls --he":                    ":files",
		"run -- l":                          ":files",
		"unknown x":                         "",
	} {
		var words []string
		for _, candidate := range Of(parser.Model.Node, strings.Split(line, " ")) {
			word := candidate.Word
			if candidate.Files {
				word = files
			}
			words = append(words, word)
		}
		if got := strings.Join(words, " "); got != want {
			t.Errorf("%q: got %q, want %q", line, got, want)
		}
	}
}

// A candidate is a line with the beginning of its help.
func TestWrite(t *testing.T) {
	var out strings.Builder
	err := Write(&out, []Candidate{{Word: "a", Help: "First: second. Third."}, {Word: "b"}, {Files: true}, {Word: "c", Help: "One."}})
	if want := "a\tFirst\nb\n:files\nc\tOne\n"; err != nil || out.String() != want {
		t.Errorf("got %q, %v, want %q", out.String(), err, want)
	}
}

// Each shell has a script that calls the program.
func TestScripts(t *testing.T) {
	for shell := range strings.SplitSeq(Shells, ",") {
		if script, err := Script(shell); err != nil || !strings.Contains(script, " __complete -- ") {
			t.Errorf("the script for %s is %q, %v", shell, script, err)
		}
	}
}
