//go:build unix

package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	mentioned = regexp.MustCompile("`fencegate\\s([a-z][^`]*)`")
	inBlock   = regexp.MustCompile(`(?m)^(?:\$ )?fencegate ([a-z].*)`)
	isCommand = regexp.MustCompile(`^[a-z][a-z-]*$`)
	flagName  = regexp.MustCompile(`(?:^|\s)(--[a-z][a-z-]*)`)
)

// TestMentionedFlags checks that the commands that documents mention, in their text or in blocks, exist and have the
// flags that are mentioned with them. cli.golden has all of them: TestSurface of cmd/fencegate.
func TestMentionedFlags(t *testing.T) {
	t.Parallel()
	golden, err := os.ReadFile(root + "/internal/test/surface/testdata/cli.golden")
	check(t, err)
	has := func(command, rest string) bool {
		return regexp.MustCompile(`(?m)^fencegate ` + command + rest).Match(golden)
	}
	names := map[string]bool{"listener": true, "prober": true, "x2": true} // of connections, and in a benchmark's table
	count := 0
	for _, document := range documents(t) {
		text, err := os.ReadFile(filepath.Join(root, document))
		check(t, err)
		all := mentioned.FindAllStringSubmatch(string(text), -1)
		for _, b := range blocksOf(t, document) {
			if b.language == "sh" || b.language == "console" {
				all = append(all, inBlock.FindAllStringSubmatch(b.text, -1)...)
			}
		}
		for _, found := range all {
			line, _, _ := strings.Cut(found[1], " -- ")
			line, _, _ = strings.Cut(line, "#")
			words := strings.Fields(line)
			command := words[0]
			if len(words) > 1 && isCommand.MatchString(words[1]) && has(command+" "+words[1], `( |$)`) {
				command += " " + words[1]
			}
			if names[words[0]] {
				continue
			}
			if !has(command, `( |$)`) {
				t.Errorf("%s mentions `fencegate %s`, and there is no such command", document, line)
			}
			for _, flag := range flagName.FindAllStringSubmatch(line, -1) {
				count++
				if name := strings.TrimPrefix(strings.TrimPrefix(flag[1], "--"), "no-"); !has(command, `( ls)? --(\[no-\]|no-)?`+name+`( |$)`) {
					t.Errorf("%s mentions `fencegate %s`, and %s has no flag %s", document, line, command, flag[1])
				}
			}
		}
	}
	if count < 50 {
		t.Errorf("the documents mention %d flags, expected more", count)
	}
}
