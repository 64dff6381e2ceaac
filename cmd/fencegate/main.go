// Command fencegate is the storage gateway that enforces fencing tokens, and the command line to it.
package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"strconv"
	"syscall"

	"github.com/alecthomas/kong"
)

// commands are the subcommands, in the order of the help. Each has a method Run, which may take a context.Context that
// ends at the first interrupt, the streams, and the *console that writes to them.
type commands struct {
	Serve   serveCmd   `cmd:"" help:"Run the gateway."`
	Health  healthCmd  `cmd:"" help:"Report whether a gateway is alive, or ready."`
	Migrate migrateCmd `cmd:"" help:"Migrate the database's schema to this program's."`
	DevCert devCertCmd `cmd:"" help:"Make certificates for a first try of TLS."`
	Check   checkCmd   `cmd:"" help:"Look in the database for what weakens the fence of protected tables."`
	Demo    demoCmds   `cmd:"" help:"See a zombie's write rejected."`
	Load    loadCmd    `cmd:"" help:"Load running gateways, and check every answer against the contract."`

	Run        runCmd        `cmd:"" help:"Run a command while holding a lock."`
	Lock       lockCmds      `cmd:"" help:"Acquire, renew, release, break and look at locks."`
	Fence      fenceCmds     `cmd:"" help:"Look at the fence of a resource, and set one whose tokens another lock service issues."`
	Put        putCmd        `cmd:"" help:"Store a record, under a fencing token."`
	Get        getCmd        `cmd:"" help:"Read a record."`
	Delete     deleteCmd     `cmd:"" help:"Delete a record, under a fencing token."`
	Import     importCmd     `cmd:"" help:"Make many writes, from a file or the standard input."`
	Keys       keysCmds      `cmd:"" help:"Create, list, rotate and revoke the API keys of callers."`
	Audit      auditCmd      `cmd:"" help:"List what administrators did, newest first."`
	Whoami     whoamiCmd     `cmd:"" help:"Show whose credential this is, and what it may do."`
	Session    sessionCmds   `cmd:"" help:"Make sessions, keep them alive, and end them."`
	Elect      electCmd      `cmd:"" help:"Run a command while leading, or show the leader."`
	Watch      watchCmd      `cmd:"" help:"Show the events of a lock."`
	Rejections rejectionsCmd `cmd:"" help:"List the rejected writes, newest first."`
	Top        topCmd        `cmd:"" help:"Show the dashboard in the terminal."`
	Version    versionCmd    `cmd:"" help:"Show the version of this program."`
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal kills
	os.Exit(run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// run is the whole program; it returns the exit code.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	con := &console{streams: streams{stdin, stdout, stderr}}
	helped := false
	parser, err := newParser(&commands{}, con, func(int) { helped = true })
	if err != nil {
		return con.fail(err)
	}
	selected, err := parser.Parse(args)
	switch {
	case helped:
		// The parser continued after it wrote the help, and its error is about what the help describes.
		return exitOK
	case err != nil:
		return con.fail(err)
	}
	selected.BindTo(ctx, (*context.Context)(nil))
	return con.fail(selected.Run())
}

func newParser(target *commands, con *console, exit func(int)) (*kong.Kong, error) {
	return kong.New(target,
		kong.Name("fencegate"),
		kong.Description(description()),
		kong.DefaultEnvars("FENCEGATE"),
		kong.Vars{"owner": defaultOwner(), "run_owner": defaultOwner() + ":" + strconv.Itoa(os.Getpid())},
		kong.ConfigureHelp(kong.HelpOptions{NoAppDescFormat: true, Compact: true, WrapUpperBound: 120}),
		kong.Writers(con.out, con.err),
		kong.Exit(exit),
		kong.Bind(con, con.streams),
	)
}
