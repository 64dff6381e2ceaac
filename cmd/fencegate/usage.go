package main

import (
	"errors"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
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

// nameOf returns the name of a command with those of the commands above it, without aliases.
func nameOf(command *kong.Node) string {
	if command.Parent == nil || command.Parent.Parent == nil {
		return command.Name
	}
	return nameOf(command.Parent) + " " + command.Name
}

// usageOf is the usage of a command on one line, and where more is.
func usageOf(command *kong.Node) string {
	if command == nil || command.Parent == nil {
		return `Run "fencegate --help".`
	}
	name := nameOf(command)
	return "Usage: fencegate " + strings.Replace(command.Summary(), command.Path(), name, 1) + "\nSee \"fencegate " + name + " --help\"."
}
