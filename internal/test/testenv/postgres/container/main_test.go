//go:build unix

package main

import (
	"strings"
	"testing"
)

func TestCommandGetsTheServerAndItsStatusIsReturned(t *testing.T) {
	for script, want := range map[string]int{
		`test "$FENCEGATE_DATABASE_URL" = postgres://x || exit 9`: 0, "exit 3": 3, "kill -9 $$": 1,
	} {
		if status, err := runWith("postgres://x", []string{"sh", "-c", script}); err != nil || status != want {
			t.Errorf("%s: status %d, %v", script, status, err)
		}
	}
	if _, err := runWith("postgres://x", []string{"/nonexistent"}); err == nil {
		t.Error("a command that can't be run is no error")
	}
}

func TestWithoutAnEngineItSaysWhatElseWillDo(t *testing.T) {
	t.Setenv("DOCKER_HOST", "unix:///nonexistent/docker.sock")
	_, err := run([]string{"true"})
	if err == nil || !strings.Contains(err.Error(), "sudo apt-get install postgresql") ||
		!strings.Contains(err.Error(), "FENCEGATE_DATABASE_URL") {
		t.Errorf("got %v", err)
	}
}
