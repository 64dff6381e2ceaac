// Command fencegate is the storage gateway that enforces fencing tokens, and the command line to it.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"reflect"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"github.com/fencegate/fencegate/internal/completion"
	"github.com/fencegate/fencegate/internal/configfile"
)

// commands are the subcommands, in the order of the help. Each has a method Run, which may take a context.Context that
// ends at the first interrupt, the streams, and the *console that writes to them.
type commands struct {
	ShowVersion kong.VersionFlag `name:"version" env:"-" help:"Show the version of this program."`

	Run     runCmd      `cmd:"" group:"work" help:"Run a command while holding a lock."`
	Elect   electCmd    `cmd:"" group:"work" help:"Run a command while leading, or lead."`
	Lock    lockCmds    `cmd:"" group:"work" help:"Acquire, renew, release, break and look at locks."`
	Session sessionCmds `cmd:"" group:"work" help:"Make sessions, keep them alive, and end them."`
	Put     putCmd      `cmd:"" group:"work" help:"Store a record, under a fencing token."`
	Get     getCmd      `cmd:"" group:"work" help:"Read a record."`
	Delete  deleteCmd   `cmd:"" group:"work" help:"Delete a record, under a fencing token."`
	Import  importCmd   `cmd:"" group:"work" help:"Make many writes, from a file or the standard input."`
	Record  recordCmds  `cmd:"" group:"work" help:"List the records of a resource."`

	Waits      waitsCmd      `cmd:"" group:"look" help:"Show which owners wait for a lock, and for whom."`
	Watch      watchCmd      `cmd:"" group:"look" help:"Show the events of a lock."`
	Rejections rejectionsCmd `cmd:"" group:"look" help:"List the rejected writes, newest first."`
	Fence      fenceCmds     `cmd:"" group:"look" help:"Look at the fence of a resource, and set one whose tokens another lock service issues."`
	Whoami     whoamiCmd     `cmd:"" group:"look" help:"Show whose credential this is, and what it may do."`

	Policy policyCmds `cmd:"" group:"admin" help:"Show, set and remove the policies of names."`
	Keys   keysCmds   `cmd:"" group:"admin" help:"Create, list, rotate and revoke the API keys of callers."`
	Audit  auditCmds  `cmd:"" group:"admin" help:"List what administrators did, newest first; verify and export it."`
	Tables tablesCmds `cmd:"" group:"admin" help:"List protected tables, and stop or resume the rejection of writes to one."`

	Dev     devCmd     `cmd:"" group:"gateway" help:"Run everything on this machine to try it: database, gateway, dashboard, and workers that are frozen."`
	Serve   serveCmd   `cmd:"" group:"gateway" help:"Run the gateway."`
	Config  configCmd  `cmd:"" group:"gateway" help:"Show the configuration that serve would have."`
	Health  healthCmd  `cmd:"" group:"gateway" help:"Report whether a gateway is alive, or ready."`
	Drain   drainCmd   `cmd:"" group:"gateway" help:"Send the clients of a gateway to others, before it is ended."`
	Migrate migrateCmd `cmd:"" group:"gateway" help:"Migrate the database's schema to this program's."`
	Check   checkCmd   `cmd:"" group:"gateway" help:"Look for what weakens fencing, loses writes, or is missing for production."`
	DevCert devCertCmd `cmd:"" group:"gateway" help:"Make certificates for a first try of TLS."`

	Demo    demoCmds   `cmd:"" group:"other" help:"See a zombie's write rejected."`
	Version versionCmd `cmd:"" group:"other" help:"Show the version of this program."`

	Completion completionCmd `cmd:"" group:"other" help:"Write the script that completes commands and flags in a shell."`
	Complete   completeCmd   `cmd:"" hidden:"" name:"__complete" help:"Complete a command line."`
}

// groups are the headings of the help, of commands and of flags that many commands have.
var groups = []kong.Group{
	{Key: "work", Title: "Work under a lock:"},
	{Key: "look", Title: "See what happens:"},
	{Key: "admin", Title: "Administer:"},
	{Key: "gateway", Title: "Run a gateway:"},
	{Key: "other", Title: "Other:"},
	{Key: "connection", Title: "Gateway, credentials and output:"},
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal kills
	os.Exit(run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// run is the whole program; it returns the exit code.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	p, err := newProgram()
	if err != nil {
		return (&console{streams: streams{stdin, stdout, stderr}}).fail(err)
	}
	return p.run(ctx, args, stdin, stdout, stderr)
}

// program has the model of the command line, which takes some 20 ms to build. It runs one command at a time.
type program struct {
	commands commands
	con      console
	parser   *kong.Kong
	helped   bool // or shown the version
}

func (p *program) run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	p.commands, p.con, p.helped = commands{}, console{streams: streams{stdin, stdout, stderr}}, false
	p.parser.Stdout, p.parser.Stderr = stdout, stderr
	bare := len(args) == 0
	if bare {
		p.parser.Stdout, args = stderr, []string{"--help"}
	}
	selected, err := p.parser.Parse(singular(args))
	p.con.command = commandOf(p.parser.Model.Node, selected, err)
	switch {
	case bare && p.helped:
		return exitUsage
	case p.helped:
		// The parser continued after it wrote the help, and its error is about what the help describes.
		return exitOK
	case err != nil:
		return p.con.fail(err)
	}
	selected.BindTo(ctx, (*context.Context)(nil))
	selected.Bind(p.con.streams)
	return p.con.fail(selected.Run())
}

func newProgram() (p *program, err error) {
	p = &program{}
	p.parser, err = kong.New(&p.commands,
		kong.Name("fencegate"),
		kong.Description(description()),
		kong.DefaultEnvars("FENCEGATE"),
		kong.Vars{
			"owner": defaultOwner(), "run_owner": defaultOwner() + ":" + strconv.Itoa(os.Getpid()),
			"version": thisBuild().line(),
		},
		kong.ExplicitGroups(groups),
		kong.TypeMapper(reflect.TypeFor[time.Duration](), kong.MapperFunc(durationFlag)),
		kong.ConfigureHelp(kong.HelpOptions{NoAppDescFormat: true, Compact: true, WrapUpperBound: 120}),
		kong.Exit(func(int) { p.helped = true }),
		kong.Bind(&p.con),
	)
	return p, err
}

// plurals are other names of commands. The parser's own aliases would show in every line of the help.
var plurals = map[string]string{
	"locks": "lock", "records": "record", "sessions": "session", "fences": "fence", "policies": "policy", "key": "keys",
	"rejection": "rejections", "table": "tables",
}

// singular replaces the plural of a command by its name, and "help COMMAND" by "COMMAND --help".
func singular(args []string) []string {
	switch {
	case len(args) == 0:
		return args
	case args[0] == "help":
		return append(singular(args[1:]), "--help")
	case plurals[args[0]] != "":
		return slices.Concat([]string{plurals[args[0]]}, args[1:])
	}
	return args
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

// The linker sets these in releases: -ldflags "-X main.version=v1.2.3 -X main.commit=0a1b2c3". Without them they are
// what the Go toolchain has recorded.
var version, commit string

type versionCmd struct{ outputFlag }

// Run shows the version.
func (versionCmd) Run(con *console) error {
	built := thisBuild()
	return con.show(built, []field{
		{"fencegate", built.Version}, {"commit", built.revision()}, {"go", built.Go + " " + built.Platform},
	})
}

// build is what is known of this program's source.
type build struct {
	Version string `json:"version"`
	// Commit is empty where it was not recorded, such as in a container's build.
	Commit string `json:"commit"`
	// Dirty says that the source had changes that are not in Commit.
	Dirty    bool   `json:"dirty"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func thisBuild() build {
	info, _ := debug.ReadBuildInfo()
	return buildOf(version, commit, info)
}

// buildOf prefers what the linker set. info may be nil.
func buildOf(version, commit string, info *debug.BuildInfo) build {
	b := build{Version: version, Commit: commit, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if info != nil {
		if b.Version == "" {
			b.Version = info.Main.Version
		}
		for _, setting := range info.Settings {
			switch {
			case setting.Key == "vcs.revision" && commit == "":
				b.Commit = setting.Value
			case setting.Key == "vcs.modified" && commit == "":
				b.Dirty = setting.Value == "true"
			}
		}
	}
	if b.Version == "" {
		b.Version = "unknown"
	}
	return b
}

// line is the answer of --version.
func (b build) line() string {
	revision := b.revision()
	if revision != "" {
		revision = "commit " + revision + ", "
	}
	return fmt.Sprintf("fencegate %s (%s%s %s)", b.Version, revision, b.Go, b.Platform)
}

func (b build) revision() string {
	if b.Commit != "" && b.Dirty {
		return b.Commit + " (dirty)"
	}
	return b.Commit
}

// programVersion is the release, or what the build knows of its source.
func programVersion() string { return thisBuild().Version }

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
