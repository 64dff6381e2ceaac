//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/fencegate/fencegate/internal/bench/writes"
	"github.com/fencegate/fencegate/internal/gatewayprocess"
)

type benchWritesCmd struct {
	scratchFlags

	Clients     []int         `help:"Numbers of clients to measure with." default:"1,8,64,256"`
	Rounds      int           `help:"How often everything is measured." default:"3"`
	Duration    time.Duration `help:"How long one target is measured in a round." default:"2s"`
	WarmUp      time.Duration `help:"How long each is run before the first round." default:"500ms"`
	Resources   int           `help:"How many resources are written to." default:"10000"`
	ValueBytes  int           `help:"Size of the values." default:"256"`
	Connections int           `help:"Connections to the database, of direct writes, of the store and of the gateway alike." default:"16"`
	Output      string        `help:"text, or json: all samples." enum:"text,json" default:"text"`
}

// Help is shown by --help.
func (benchWritesCmd) Help() string {
	return "Writes per second and latencies of fenced writes, through the store and through a gateway process, beside direct, unfenced upserts " +
		"on the same server in the same run. The ratios are of the same round: quote them, not single figures."
}

// Run measures.
func (c *benchWritesCmd) Run(ctx context.Context, streams streams) error {
	return c.use(ctx, func(program string, db *scratch) (err error) {
		gateway, err := gatewayprocess.Start(ctx, program, "--database-url", db.url, "--database-connections-max", strconv.Itoa(c.Connections))
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, gateway.Stop()) }()

		report, err := writes.Run(ctx, writes.Config{
			DatabaseURL: db.url, GatewayURL: gateway.URL, Clients: c.Clients, Rounds: c.Rounds, Duration: c.Duration, WarmUp: c.WarmUp,
			Resources: c.Resources, ValueBytes: c.ValueBytes, Connections: c.Connections,
			Progress: func(s writes.Sample) {
				_, _ = fmt.Fprintf(streams.err, "round %d: %3d clients, %-6s %8.0f writes/s\n", s.Round, s.Clients, s.Target, s.PerSecond)
			},
		})
		if err != nil {
			return err
		}
		if c.Output == "json" {
			return writeJSON(streams.out, report)
		}
		return report.WriteTable(streams.out)
	})
}
