package lockclient

import (
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestUnusableTokenFileKeepsToken checks that the last good token stays in use while the content of its file is no
// token, and that the next good one is used.
func TestUnusableTokenFileKeepsToken(t *testing.T) {
	t.Parallel()
	c := &credential{path: filepath.Join(t.TempDir(), "token")}
	used := func(content string) string {
		t.Helper()
		if err := os.WriteFile(c.path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		c.readAt = time.Time{}
		header := http.Header{}
		c.authorize(header)
		return header.Get("Authorization")
	}
	if err := os.WriteFile(c.path, []byte("first\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := c.open(); err != nil {
		t.Fatal(err)
	}
	for _, content := range []string{"", " \n", "two words", "two\nlines", "second\r\nHost: b", "\x00", "sécond"} {
		if got := used(content); got != "Bearer first" {
			t.Errorf("with %q in the file, %q is sent, expected the first token", content, got)
		}
	}
	if got := used(" second\n"); got != "Bearer second" {
		t.Errorf("%q is sent, expected the second token", got)
	}
	if err := os.Remove(c.path); err != nil {
		t.Fatal(err)
	}
	c.readAt = time.Time{}
	header := http.Header{}
	if c.authorize(header); header.Get("Authorization") != "Bearer second" {
		t.Errorf("without the file, %q is sent, expected the second token", header.Get("Authorization"))
	}
}
