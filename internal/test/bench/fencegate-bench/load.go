//go:build unix

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/fencegate/fencegate/internal/test/load"
	"github.com/fencegate/fencegate/internal/test/spec"
	"github.com/fencegate/fencegate/lockclient"
)

type loadCmd struct {
	URL       []string        `help:"All gateways of one database." default:"http://127.0.0.1:8080" env:"FENCEGATE_URL" placeholder:"URL"`
	TokenFile string          `help:"File of the API key or token to send." type:"path" placeholder:"PATH"`
	Output    string          `help:"table or json." enum:"table,json" default:"table"`
	Clients   int             `help:"How many clients work at once." default:"80"`
	Locks     int             `help:"How many locks they contend for; 0: a quarter of --clients." default:"0"`
	Duration  time.Duration   `help:"How long." default:"20s"`
	Seed      uint64          `help:"Seed of the clients' random choices; 0: a random one." default:"0"`
	Pressure  []load.Pressure `help:"Load on other names beside it, to see what that costs the checked clients: queue (--waiters clients wait for one lock), fence (one kept locked in the database), zombies (superseded writers without a pause), sessions (of 1,000 deep leases, ended one after the other)." placeholder:"KIND"`
	Waiters   int             `help:"How many clients --pressure queue has wait." default:"5000"`
	History   string          `help:"File to keep all calls in, for check-history." type:"path" placeholder:"PATH"`
	Database  string          `name:"database-url" help:"PostgreSQL of the gateways, for --pressure fence." env:"FENCEGATE_DATABASE_URL" placeholder:"URL"`
}

// Help is shown by --help.
func (loadCmd) Help() string {
	return "Clients acquire, renew, write and release, send writes twice, lose answers, leave leases to expire, and " +
		"pause past their TTL to come back " +
		"as zombies. Every answer is checked against the contract while they work: one holder, rising tokens, old tokens " +
		"rejected, nothing lost, " +
		"every numbered write applied exactly once.\n\n" +
		"Give all gateways of one database by --url. Locks and records have new names, load/…; they are left behind. " +
		"Exits 0 if there was no violation, 1 if there was one or an answer that no client can have deserved. An interrupt " +
		"ends it early, with the report."
}

// errViolated is returned by a load that found violations. The report has them.
var errViolated = errors.New("the contract was violated: see the report")

// Run loads the gateways.
func (c *loadCmd) Run(ctx context.Context, to output) (err error) {
	config := load.Config{
		URLs: c.URL, Clients: c.Clients, Locks: c.Locks, Duration: c.Duration, Seed: c.Seed, Pressure: c.Pressure,
		Waiters: c.Waiters, DatabaseURL: c.Database,
		Progress: func(p load.Progress) {
			_, _ = fmt.Fprintf(to.err, "%6.0fs  %d clients  %6.0f ops/s  %d zombies rejected  %d violations\n",
				p.Elapsed.Seconds(), p.Clients, p.PerSecond, p.Zombies, p.Violations)
		},
	}
	if c.History != "" {
		file, failed := os.Create(c.History)
		if failed != nil {
			return failed
		}
		defer func() { err = errors.Join(err, file.Close()) }()
		config.History = file
	}
	var options []lockclient.Option
	if c.TokenFile != "" {
		options = append(options, lockclient.WithTokenFile(c.TokenFile))
	}
	var clients []*lockclient.Client
	defer func() {
		for _, client := range clients {
			client.Close()
		}
	}()
	for _, url := range c.URL {
		// A client for each, without failover: a call that was sent again unseen could not be judged.
		client, err := lockclient.New(url, options...)
		if err != nil {
			return err
		}
		clients = append(clients, client)
		config.Gateways = append(config.Gateways, client.API())
	}
	report, err := load.Run(ctx, config)
	if err != nil {
		return err
	}
	if c.Output == "json" {
		err = json.NewEncoder(to.out).Encode(report)
	} else {
		err = report.WriteText(to.out)
	}
	if err == nil && (report.ViolationsTotal > 0 || report.Counts.Unexpected > 0) {
		return errViolated
	}
	return err
}

type checkHistoryCmd struct {
	Files []string      `arg:"" help:"Histories, a call a line. Those of serve --record-history (*.calls, *.calls.old) are checked together, and need not be whole; others as load --history and failed tests keep them, one by one." type:"existingfile" name:"file"`
	Skew  time.Duration `help:"By how much the clocks of the gateways may differ, that recorded several files." default:"1s"`
}

// Run checks histories.
func (c *checkHistoryCmd) Run(to output) error {
	var recorded []spec.Call
	parts := 0
	broken := 0
	report := func(calls []spec.Call, check func([]spec.Call) []spec.Violation) {
		begun := time.Now()
		found := check(calls)
		for _, violation := range found {
			_, _ = fmt.Fprintf(to.out, "%s\n\n", violation)
		}
		_, _ = fmt.Fprintf(to.out, "# %d calls, %d violations, checked in %s\n", len(calls), len(found),
			time.Since(begun).Round(time.Millisecond))
		broken += len(found)
	}
	for _, name := range c.Files {
		file, err := os.Open(name)
		if err != nil {
			return err
		}
		calls, err := spec.ReadCalls(file)
		if err = errors.Join(err, file.Close()); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if strings.HasSuffix(strings.TrimSuffix(name, ".old"), ".calls") {
			recorded, parts = append(recorded, calls...), parts+1
			continue
		}
		report(calls, spec.Check)
	}
	if parts > 0 {
		skew := c.Skew
		if parts == 1 {
			skew = 0
		}
		report(recorded, func(calls []spec.Call) []spec.Violation { return spec.CheckPart(calls, skew) })
	}
	if broken > 0 {
		return errViolated
	}
	return nil
}
