//go:build unix

// Command fencegate-bench measures fenced writes, protected tables and locks beside unfenced writes and other lock
// services.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kong"
	"github.com/gorilla/mux"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencegate/fencegate/internal/test/bench/rig"
)

const description = "Measures fencegate on this machine. docs/performance.md describes the benchmarks. What is not on the machine is " +
	"skipped.\nThe ratios are of the same round: quote them, not single figures.\n\n" +
	"Every flag can be set by an environment variable, too: --database-url by\nFENCEGATE_DATABASE_URL."

type commands struct {
	Writes writesCmd       `cmd:"" default:"withargs" help:"Measure fenced writes beside unfenced ones (the default)."`
	Locks  locksCmd        `cmd:"" help:"Measure locks beside etcd's and Redis's."`
	Tables tablesCmd       `cmd:"" help:"Measure fenced writes to tables of a user's own beside unfenced ones."`
	Names  namesCmd        `cmd:"" help:"Measure a database of many names beside one of few."`
	Load   loadCmd         `cmd:"" help:"Load running gateways, and check every answer against the contract."`
	Check  checkHistoryCmd `cmd:"" name:"check-history" help:"Check the calls of clients, as they were recorded, against the contract."`
	Soak   soakCmd         `cmd:"" help:"Load two gateways for long, and find what grows."`
	CPU    cpuCmd          `cmd:"" help:"Measure PostgreSQL's CPU time for a call, as a multiple of a bare upsert's."`
	Memory memoryCmd       `cmd:"" help:"Measure what waiters, streams, sessions and connections add to the memory of a gateway."`
	Floor  floorCmd        `cmd:"" hidden:"" help:"Serve an empty handler."`
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
	parser, failure := kong.New(&commands{},
		kong.Name("fencegate-bench"),
		kong.Description(description),
		kong.DefaultEnvars("FENCEGATE"),
		kong.ConfigureHelp(kong.HelpOptions{NoAppDescFormat: true, Compact: true, WrapUpperBound: 120}),
		kong.Vars{"writes": strings.Join(writeTargetNames, ","), "transactions": strings.Join(transactionNames(), ",")},
		kong.Writers(out, err),
		kong.Exit(func(int) { helped = true }),
		kong.Bind(output{out, err}),
	)
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

// pause reports whether it lasted to its end.
func pause(ctx context.Context, length time.Duration) bool {
	select {
	case <-time.After(length):
		return true
	case <-ctx.Done():
		return false
	}
}

func clientsName(clients int) string { return fmt.Sprintf("%d clients", clients) }

// What all workloads write.
const (
	benchKey    = "value"
	contentType = "application/octet-stream"
)

// makeFences makes the resources named prefix and a number, from one number to another, with a fence and a record each,
// as if each had been acquired and written to. Acquiring millions of leases would take an hour; the rows are the same.
func makeFences(
	ctx context.Context, db *pgxpool.Pool, prefix string, from, to int, value []byte,
) (token int64, err error) {
	if err := db.QueryRow(ctx, "select nextval('fence.tokens')").Scan(&token); err != nil {
		return 0, fmt.Errorf("take a token: %w", err)
	}
	_, err = db.Exec(ctx, `
		with made as (
			insert into fence.fences (resource, granted_token, last_version, open)
			select $1 || n, $4::bigint, 1, true from generate_series($2::integer, $3::integer) n
			returning resource)
		insert into fence.records (resource, key, version, fencing_token, sequence, updated_at, content_type, value)
		select resource, $5, 1, $4::bigint, 0, now(), $6, $7::bytea from made`,
		prefix, from, to, token, benchKey, contentType, value)
	if err != nil {
		return 0, fmt.Errorf("make fences and records: %w", err)
	}
	return token, nil
}

// floorCmd serves the path of a write with a handler that does nothing: the throughput that a gateway could reach on
// this machine if its work cost nothing.
type floorCmd struct {
	Listen string `help:"Address to serve on." default:"127.0.0.1:8090"`
}

// Run answers every write with 200 until ctx ends.
func (c *floorCmd) Run(ctx context.Context) error {
	router := mux.NewRouter().SkipClean(true)
	router.Path("/v1/resources/{resource:(?s:.*)}/records/{key:(?s:.*)}").Methods(http.MethodPut).
		HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", c.Listen)
	if err != nil {
		return fmt.Errorf("--listen %s: %w", c.Listen, err)
	}
	server := &http.Server{Handler: router, ReadHeaderTimeout: 10 * time.Second}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
