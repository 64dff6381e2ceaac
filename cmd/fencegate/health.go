package main

import (
	"context"
	"time"

	"github.com/fencegate/fencegate/gateway/api"
)

type healthCmd struct {
	connectionFlags
	outputFlag

	URL     string        `group:"connection" help:"Where the gateway is." default:"http://127.0.0.1:8080"`
	Ready   bool          `help:"Check also whether it can serve: its database is reachable, takes commits, and has its schema."`
	Timeout time.Duration `group:"connection" help:"How long the gateway may take." default:"3s"`
}

// Help is shown by "fencegate health --help".
func (healthCmd) Help() string {
	return "Exits 0 if it does, 7 if it does not. It calls one gateway, once: for health checks of containers and the " +
		"like. Without --ready it does not check the " +
		"database, whose failure is no reason to restart a gateway."
}

// Run calls the gateway.
func (c *healthCmd) Run(ctx context.Context, con *console) error {
	if c.Timeout <= 0 {
		return usagef("--timeout is %s, it must be positive", c.Timeout)
	}
	client, err := c.connect("--url", c.URL)
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	probe, health := client.API().Alive, api.Health{Status: "ok"}
	if c.Ready {
		probe, health = client.API().Ready, api.Health{Status: "ready"}
	}
	if err := probe(ctx); err != nil {
		return err
	}
	return con.show(health, []field{{"status", health.Status}})
}
