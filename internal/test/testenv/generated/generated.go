// Package generated checks the parts of documents that are made from the code.
package generated

import (
	"os"
	"strings"
	"testing"
)

// Section checks that the text after a heading of a document, between its comments "Generated" and "end", is want. With
// update it replaces that text.
func Section(t *testing.T, document, heading, want string, update bool) {
	t.Helper()
	text, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(text), "\n"+heading+"\n")
	_, section, begun := strings.Cut(section, "<!-- Generated ")
	_, section, opened := strings.Cut(section, "-->\n")
	section, rest, ended := strings.Cut(section, "<!-- end -->\n")
	if !found || !begun || !opened || !ended {
		t.Fatalf("%s has no generated text after %q", document, heading)
	}
	if section == want {
		return
	}
	if !update {
		t.Fatalf("%s is stale after %q: make docs rewrites it", document, heading)
	}
	before := strings.TrimSuffix(string(text), section+"<!-- end -->\n"+rest)
	//nolint:gosec // the caller names the document
	if err := os.WriteFile(document, []byte(before+want+"<!-- end -->\n"+rest), 0o600); err != nil {
		t.Fatal(err)
	}
}
