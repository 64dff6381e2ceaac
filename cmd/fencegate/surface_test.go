package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"github.com/fencegate/fencegate/internal/test/surface"
)

// TestSurface compares the commands, their arguments, flags with defaults and variables, and the exit codes with
// cli.golden. A flag of serve is a key of its configuration file, too.
func TestSurface(t *testing.T) {
	t.Parallel()
	p, err := newProgram()
	check(t, err)
	var lines []string
	for _, exit := range exitMeanings {
		lines = append(lines, fmt.Sprintf("exit %d: %s", exit.code, strings.Join(strings.Fields(exit.meaning), " ")))
	}
	for _, command := range p.parser.Model.Leaves(true) {
		usage := command.FullPath()
		lines = append(lines, strings.Join(append([]string{usage}, arguments(command)...), " "))
		for _, flags := range command.AllFlags(true) {
			for _, flag := range flags {
				lines = append(lines, usage+" "+flagLine(flag))
			}
		}
	}
	surface.Compare(t, "../../internal/test/surface/testdata/cli.golden", lines)
}

func arguments(command *kong.Node) (summaries []string) {
	for _, argument := range command.Positional {
		summaries = append(summaries, argument.Summary())
	}
	return summaries
}

// flagLine shows a flag with its default as it stands in the source: some depend on the machine.
func flagLine(flag *kong.Flag) string {
	line := "--" + flag.Name
	if flag.Tag.Negatable != "" {
		line = "--[no-]" + flag.Name
	}
	if flag.Short != 0 {
		line += fmt.Sprintf(" -%c", flag.Short)
	}
	if !flag.IsBool() {
		line += " VALUE"
	}
	if flag.IsCumulative() {
		line += ",…"
	}
	for _, part := range []struct{ name, value string }{
		{"enum", flag.Tag.Enum}, {"default", flag.Tag.Default}, {"env", strings.Join(flag.Envs, ",")},
	} {
		if part.value != "" {
			line += " " + part.name + "=" + part.value
		}
	}
	return line
}
