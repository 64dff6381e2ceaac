package main

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/fencegate/fencegate/internal/await"
	"github.com/fencegate/fencegate/internal/pgtest"
)

// The README's curl session prints what the README says when it is run in one shell. A second run on the same database
// prints the same but for the numbers.
func TestReadmeSession(t *testing.T) {
	t.Parallel()
	pgtest.Require(t, "curl")
	gateway := newShell(t)

	steps := readmeSession(t)
	if len(steps) < 6 {
		t.Fatalf("the README's session has %d commands, there should be more", len(steps))
	}
	for _, mask := range []func(string) string{masked,
		func(output string) string { return maskedNumber.ReplaceAllString(masked(output), "N") }} {
		await.True(t, "no lock is held", func() bool { return !strings.Contains(gateway.must("lock", "ls"), " held ") })
		for i, output := range gateway.session(steps) {
			if got, want := mask(output), mask(steps[i].output); got != want {
				t.Errorf("$ %s\nanswered:\n%s\nthe README says:\n%s", steps[i].command, got, want)
			}
		}
	}
}

// session runs commands in one shell, and returns the output of each.
func (s shell) session(steps []readmeStep) []string {
	s.t.Helper()
	const end = "<end of a command>"
	script := "set -eo pipefail; exec 2>&1\n"
	for _, step := range steps {
		script += step.command + "\necho '" + end + "'\n"
	}
	command := exec.CommandContext(s.t.Context(), "bash", "-c", script)
	command.Env = append(os.Environ(), "URL="+s.url)
	output, err := command.Output()
	outputs := strings.Split(string(output), end+"\n")
	if err != nil || len(outputs) != len(steps)+1 {
		s.t.Fatalf("%v: %s", err, output)
	}
	return outputs[:len(steps)]
}

type readmeStep struct{ command, output string }

// readmeSession reads the block of the README whose commands begin with "$ ".
func readmeSession(t *testing.T) []readmeStep {
	t.Helper()
	text, err := os.ReadFile("../../README.md")
	check(t, err)
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
	maskedID     = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)
	maskedNumber = regexp.MustCompile(`\d+`)
	maskedTime   = regexp.MustCompile(`"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"`)
)

// masked hides what is another at every run.
func masked(output string) string {
	output = maskedTime.ReplaceAllString(maskedID.ReplaceAllString(output, "UUID"), `"`+
		time.Time{}.Format(time.DateOnly)+`"`)
	return strings.TrimSpace(output)
}
