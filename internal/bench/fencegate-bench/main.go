//go:build unix

// Command fencegate-bench measures fenced writes, protected tables and locks beside unfenced writes and other lock
// services.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"syscall"

	"github.com/alecthomas/kong"

	"github.com/fencegate/fencegate/internal/bench/floor"
	"github.com/fencegate/fencegate/internal/bench/rig"
)

const description = "Measures fencegate on this machine. docs/benchmarks.md describes the benchmarks.\n\n" +
	"Every flag can be set by an environment variable, too: --database-url by\nFENCEGATE_DATABASE_URL."

type commands struct {
	Writes writesCmd `cmd:"" default:"withargs" help:"Measure fenced writes beside unfenced ones (the default)."`
	Locks  locksCmd  `cmd:"" help:"Measure locks beside etcd's and Redis's."`
	Tables tablesCmd `cmd:"" help:"Measure fenced writes to tables of a user's own beside unfenced ones."`
	Names  namesCmd  `cmd:"" help:"Measure a database of many names beside one of few."`
	Soak   soakCmd   `cmd:"" help:"Load two gateways for long, and find what grows."`
	CPU    cpuCmd    `cmd:"" help:"Measure PostgreSQL's CPU time for a call, as a multiple of a bare upsert's."`
	Floor  floorCmd  `cmd:"" hidden:"" help:"Serve an empty handler."`
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal kills
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// output is what a command writes to.
type output struct{ out, err io.Writer }

// run is the whole program; it returns the exit code.
func run(ctx context.Context, args []string, out, err io.Writer) int {
	helped := false
	parser, failure := newParser(output{out, err}, func(int) { helped = true })
	if failure == nil {
		var selected *kong.Context
		selected, failure = parser.Parse(args)
		if failure == nil && !helped {
			selected.BindTo(ctx, (*context.Context)(nil))
			failure = selected.Run()
		}
	}
	if failure == nil || helped {
		return 0
	}
	_, _ = fmt.Fprintf(err, "fencegate-bench: %v\n", failure)
	return 1
}

func newParser(to output, exit func(int)) (*kong.Kong, error) {
	return kong.New(&commands{},
		kong.Name("fencegate-bench"),
		kong.Description(description),
		kong.DefaultEnvars("FENCEGATE"),
		kong.ConfigureHelp(kong.HelpOptions{NoAppDescFormat: true, Compact: true, WrapUpperBound: 120}),
		kong.Writers(to.out, to.err),
		kong.Exit(exit),
		kong.Bind(to),
	)
}

type floorCmd struct {
	Listen string `help:"Address to serve on." default:"127.0.0.1:8090"`
}

// Run serves until ctx ends.
func (c *floorCmd) Run(ctx context.Context) error { return floor.Serve(ctx, c.Listen) }

// quoteRatios is in the help of all that compares.
const quoteRatios = "What is not on the machine is skipped. The ratios are of the same round: quote them, not " +
	"single figures."

// measure runs measurements on a rig of their own, and writes the report.
func measure(ctx context.Context, to output, servers rig.Servers, pace rig.Pace, private rig.Private,
	run func(*rig.Rig) error, goals func(rig.Report) []rig.Goal,
) (err error) {
	r, err := rig.Open(ctx, servers, pace, private, to.err)
	defer func() { err = errors.Join(err, r.Close()) }()
	if err == nil {
		err = run(r)
	}
	if err != nil {
		return err
	}
	return r.Write(to.out, goals)
}

// wanted are those that are named, or all.
func wanted[T any](all []T, names []string, nameOf func(T) string) []T {
	return slices.DeleteFunc(slices.Clone(all), func(t T) bool {
		return len(names) > 0 && !slices.Contains(names, nameOf(t))
	})
}

// checkTargets returns an error for a name that is none of a target's.
func checkTargets(names, known []string) error {
	for _, name := range names {
		if !slices.Contains(known, name) {
			return fmt.Errorf("--targets: there is no %q; there are %v", name, known)
		}
	}
	return nil
}
