package main

import (
	"io"

	"github.com/alecthomas/kong"

	"github.com/fencegate/fencegate/internal/completion"
)

type completionCmd struct {
	Shell string `arg:"" help:"bash, zsh or fish." enum:"bash,zsh,fish"`
}

// Help is shown by "fencegate completion --help".
func (completionCmd) Help() string {
	return "For bash, write to ~/.bashrc: source <(fencegate completion bash). The script of another shell begins with " +
		"what to write where. It asks the program for the words, so it need not be renewed."
}

// Run writes the script.
func (c *completionCmd) Run(streams streams) error {
	script, err := completion.Script(c.Shell)
	if err != nil {
		return err
	}
	_, err = io.WriteString(streams.out, script)
	return err
}

// completeCmd is what the scripts call.
type completeCmd struct {
	Words []string `arg:"" optional:"" passthrough:""`
}

// Run writes the words that may follow.
func (c *completeCmd) Run(ctx *kong.Context, streams streams) error {
	return completion.Write(streams.out, completion.Of(ctx.Model.Node, singular(withoutDashes(c.Words))))
}
