package main

import (
	"errors"
	"slices"

	"github.com/alecthomas/kong"

	"github.com/fencegate/fencegate/internal/manpage"
)

// plurals are other names of commands. The parser's own aliases would show in every line of the help.
var plurals = map[string]string{
	"locks": "lock", "records": "record", "sessions": "session", "fences": "fence", "policies": "policy", "key": "keys",
	"rejection": "rejections",
}

// singular replaces the plural of a command by its name.
func singular(args []string) []string {
	if len(args) == 0 || plurals[args[0]] == "" {
		return args
	}
	return slices.Concat([]string{plurals[args[0]]}, args[1:])
}

// commandOf returns the command that a command line names, as far as the parser could read it.
func commandOf(root *kong.Node, selected *kong.Context, err error) *kong.Node {
	if failed := (*kong.ParseError)(nil); errors.As(err, &failed) {
		selected = failed.Context
	}
	command := root
	if selected != nil {
		for _, part := range selected.Path {
			if part.Command != nil {
				command = part.Command
			}
		}
	}
	return command
}

// usageOf is the usage of a command on one line, and where more is.
func usageOf(command *kong.Node) string {
	if command == nil || command.Parent == nil {
		return `Run "fencegate --help".`
	}
	return "Usage: fencegate " + manpage.Usage(command) + "\nSee \"fencegate " + manpage.Name(command) + " --help\"."
}
