package main

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/fencegate/fencegate/internal/pgtest"
)

// TestReadmeSession runs the README's curl session as it stands, command by command, and compares what is answered.
func TestReadmeSession(t *testing.T) {
	pgtest.Require(t, "curl")
	gateway := newShell(t)

	steps := readmeSession(t)
	if len(steps) < 6 {
		t.Fatalf("the README's session has %d commands, there should be more", len(steps))
	}
	for _, step := range steps {
		command := exec.CommandContext(t.Context(), "bash", "-c", step.command)
		command.Env = append(os.Environ(), "URL="+gateway.url)
		output, err := command.CombinedOutput()
		if err != nil {
			t.Fatalf("$ %s\n%s\n%v", step.command, output, err)
		}
		if got, want := masked(string(output)), masked(step.output); got != want {
			t.Errorf("$ %s\nanswered:\n%s\nthe README says:\n%s", step.command, got, want)
		}
	}
}

type readmeStep struct{ command, output string }

// readmeSession reads the block of the README whose commands begin with "$ ".
func readmeSession(t *testing.T) []readmeStep {
	t.Helper()
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, block, found := strings.Cut(string(text), "```console\n")
	block, _, closed := strings.Cut(block, "```")
	if !found || !closed {
		t.Fatal("the README has no console block")
	}
	var steps []readmeStep
	for line := range strings.Lines(block) {
		if command, ok := strings.CutPrefix(line, "$ "); ok {
			steps = append(steps, readmeStep{command: strings.TrimSpace(command)})
		} else if strings.TrimSpace(line) != "" {
			steps[len(steps)-1].output += line
		}
	}
	return steps
}

var (
	maskedID   = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)
	maskedTime = regexp.MustCompile(`"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"`)
)

// masked hides what is another at every run.
func masked(output string) string {
	output = maskedTime.ReplaceAllString(maskedID.ReplaceAllString(output, "UUID"), `"`+time.Time{}.Format(time.DateOnly)+`"`)
	return strings.TrimSpace(output)
}
