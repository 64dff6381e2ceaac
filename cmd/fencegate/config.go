package main

import (
	"os"
	"slices"

	"github.com/alecthomas/kong"

	"github.com/fencegate/fencegate/internal/configfile"
)

// configFlag is a file of settings. Flags precede the environment, which precedes the file.
type configFlag string

// BeforeResolve is called by the parser, also where another command was selected.
func (configFlag) BeforeResolve(ctx *kong.Context, trace *kong.Path) error {
	path, _ := ctx.FlagValue(trace.Flag).(configFlag)
	if path == "" || ctx.Selected() == nil || !slices.Contains(ctx.Selected().Flags, trace.Flag) {
		return nil
	}
	values, err := configfile.Read(string(path), ctx.Selected().Flags)
	if err != nil {
		return usagef("--config: %v", err)
	}
	ctx.AddResolver(kong.ResolverFunc(func(_ *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) {
		if isInEnvironment(flag) {
			return nil, nil
		}
		return values[flag.Name], nil
	}))
	return nil
}

func isInEnvironment(flag *kong.Flag) bool {
	return slices.ContainsFunc(flag.Envs, func(variable string) bool {
		_, ok := os.LookupEnv(variable)
		return ok
	})
}

// configCmd has the flags of serve.
type configCmd struct{ serveCmd }

// Help is shown by "fencegate config --help".
func (configCmd) Help() string {
	return "Shows the settings that serve would have with the same flags, environment and --config, as such a file. A " +
		"value with a password is a comment, without the password."
}

// Run shows the configuration.
func (configCmd) Run(ctx *kong.Context, streams streams) error {
	return configfile.Write(streams.out, ctx.Selected().Flags)
}
