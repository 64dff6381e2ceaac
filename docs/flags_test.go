//go:build unix

package docs_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/internal/test/testenv/process"
)

var (
	mentioned = regexp.MustCompile("`fencegate\\s([a-z][^`]*)`")
	inBlock   = regexp.MustCompile(`(?m)^(?:\$ )?fencegate ([a-z].*)`)
	flagName  = regexp.MustCompile(`(?:^|\s)(--[a-z][a-z-]*)`)
	listed    = regexp.MustCompile(`(?m)^  ([a-z-]+(?: [a-z-]+)?)\b`)
)

// TestMentionedFlags checks that the commands that documents mention, in their text or in blocks, exist and have the
// flags that are mentioned with them.
func TestMentionedFlags(t *testing.T) {
	t.Parallel()
	fencegate := process.Build(t)
	helps := map[string]string{}
	help := func(command string) string {
		if _, known := helps[command]; !known {
			output, err := exec.CommandContext(await.Context(t), fencegate,
				append(strings.Fields(command), "--help")...).Output()
			check(t, err)
			helps[command] = string(output)
		}
		return helps[command]
	}
	commands := map[string]bool{}
	names := map[string]bool{"listener": true, "prober": true, "x2": true} // of connections, and in a benchmark's table
	for _, found := range listed.FindAllStringSubmatch(help(""), -1) {
		commands[found[1]] = true
	}
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
			command := strings.Join(words[:min(2, len(words))], " ")
			if !commands[command] {
				command = words[0]
			}
			if commands[command+" ls"] {
				command += " ls" // the default
			}
			if names[words[0]] {
				continue
			}
			if !commands[command] && !strings.Contains(help(""), "  "+command+" ") {
				t.Errorf("%s mentions `fencegate %s`, and there is no such command", document, line)
				continue
			}
			for _, flag := range flagName.FindAllStringSubmatch(line, -1) {
				count++
				negated := strings.Replace(flag[1], "--no-", "--[no-]", 1)
				if !hasFlag(help(command), flag[1]) && !hasFlag(help(command), negated) {
					t.Errorf("%s mentions `fencegate %s`, and %s has no flag %s", document, line, command, flag[1])
				}
			}
		}
	}
	if count < 50 {
		t.Errorf("the documents mention %d flags, expected more", count)
	}
}

func hasFlag(help, flag string) bool {
	return regexp.MustCompile(regexp.QuoteMeta(flag) + `(?:[^a-z-]|$)`).MatchString(help)
}
