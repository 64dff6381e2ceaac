package top

import (
	"slices"
	"testing"
)

// Keys are distinguished however many arrive in one read; sequences of unknown keys are not taken for an escape.
func TestKeys(t *testing.T) {
	for read, want := range map[string][]key{
		"":                    nil,
		"2p":                  {"2", "p"},
		"\x1b":                {keyEscape},
		"q\x03\x1b":           {"q", keyCtrlC, keyEscape},
		"ä日\r":                {"ä", "日", keyEnter},
		"\x1b[A\x1bOB\x1b[5~": {keyUp, keyDown, keyPageUp},
		"k j\t":               {"k", " ", "j", keyTab},
		"\x1b[1;5P3":          {"\x1b[1;5P", "3"},
		"A":                   {"A"},
	} {
		if got := keysOf([]byte(read)); !slices.Equal(got, want) {
			t.Errorf("%q is %q, want %q", read, got, want)
		}
	}
}
