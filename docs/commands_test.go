//go:build unix

package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/fencegate/fencegate/internal/test/testenv/postgres"
)

func TestMain(m *testing.M) {
	// What the developer has set must not decide how commands behave here.
	for _, variable := range os.Environ() {
		name, _, _ := strings.Cut(variable, "=")
		if strings.HasPrefix(name, "FENCEGATE_") && name != "FENCEGATE_DATABASE_URL" {
			_ = os.Unsetenv(name)
		}
	}
	os.Exit(postgres.Main(m))
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestCommands runs the commands and programs of all documents. The blocks of a document run in their order, in one
// shell, before a gateway and a database of its own. They must succeed, or print what the document shows. The runbooks
// share a session, in which each command must print something. Blocks that can't run here are among the exceptions. Fragments of Go are parsed, and targets of make must exist.
func TestCommands(t *testing.T) {
	t.Parallel()
	used := map[string]bool{}
	ofRunbooks := []step{{block: block{file: runbooks}, script: installation}}
	for _, document := range documents(t) {
		steps := documentSteps(t, document, used)
		if filepath.Dir(document) == runbooks {
			ofRunbooks = append(ofRunbooks, steps...)
			continue
		}
		if len(steps) == 0 {
			continue
		}
		t.Run(document, func(t *testing.T) {
			t.Parallel()
			session(t, document, steps)
		})
	}
	t.Run(runbooks, func(t *testing.T) {
		t.Parallel()
		session(t, runbooks, ofRunbooks)
	})
	for name := range exceptions {
		if !used[name] {
			t.Errorf("no document has the block %q: remove it from the exceptions", name)
		}
	}
}

// documentSteps returns what is to be run of a document, and marks the exceptions that it uses.
func documentSteps(t *testing.T, document string, used map[string]bool) []step {
	t.Helper()
	var steps []step
	blocks := blocksOf(t, document)
	for i, b := range blocks {
		name, special := exceptionOf(t, b)
		switch {
		case special.elsewhere != "":
			used[name] = true
			continue
		case b.language == "go" && !isProgram(b.text):
			checkFragment(t, b)
			continue
		case slices.Contains(texts, b.language), makes(t, b):
			continue
		}
		var next *block
		if i+1 < len(blocks) && blocks[i+1].line == b.line+strings.Count(b.text, "\n")+3 {
			next = &blocks[i+1]
		}
		used[name] = true
		if special.instead != "" {
			steps = append(steps, step{block: b, script: special.instead})
			continue
		}
		if special.before != "" {
			steps = append(steps, step{block: b, script: special.before})
		}
		made := stepsOf(b, i, next)
		if made == nil {
			t.Errorf("%s:%d: a block of %q can't be run here: see CONTRIBUTING.md", b.file, b.line, b.language)
		}
		for j := range made {
			made[j].prints = filepath.Dir(document) == runbooks
		}
		steps = append(steps, made...)
		if special.twice {
			steps = append(steps, made...)
		}
	}
	return steps
}

// exceptionOf returns the exception that a block is, and its name; none is "".
func exceptionOf(t *testing.T, b block) (name string, special exception) {
	t.Helper()
	for prefix, e := range exceptions {
		if !strings.HasPrefix(b.file+": "+b.first(), prefix) {
			continue
		}
		if name != "" {
			t.Errorf("%s:%d: the exceptions %q and %q both fit", b.file, b.line, name, prefix)
		}
		name, special = prefix, e
	}
	return name, special
}

var (
	commandOfMake = regexp.MustCompile(`^(\$ )?make `)
	target        = regexp.MustCompile(`\bmake ([a-z-]+)`)
)

// makes is whether all commands of a block are of make. These build, measure and test for minutes: it checks that their
// targets exist.
func makes(t *testing.T, b block) bool {
	t.Helper()
	var commands []string
	for line := range strings.Lines(b.text) {
		if b.language == "sh" || strings.HasPrefix(line, "$ ") {
			commands = append(commands, line)
		}
	}
	if len(commands) == 0 || slices.ContainsFunc(commands, func(c string) bool { return !commandOfMake.MatchString(c) }) {
		return false
	}
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	check(t, err)
	for _, command := range commands {
		command, _, _ = strings.Cut(command, "#")
		for _, found := range target.FindAllStringSubmatch(command, -1) {
			if !regexp.MustCompile(`(?m)^([a-z -]+ )?` + found[1] + `( [a-z -]+)?:`).Match(makefile) {
				t.Errorf("%s:%d: the Makefile has no target %s", b.file, b.line, found[1])
			}
		}
	}
	return true
}
