package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/fencegate/fencegate/lockclient"
	"github.com/fencegate/fencegate/lockclient/admin"
	"github.com/fencegate/fencegate/lockclient/api"
)

type watchCmd struct {
	gatewayFlags
	outputFlag
	Lock string `arg:"" help:"Name of the lock."`
}

// Help is shown by "fencegate watch --help".
func (watchCmd) Help() string {
	return "Shows the state of the lock, and again after each change: who holds it, with which token and metadata, and how " +
		"many wait. A renewal is no change. It reconnects after a lost connection. An interrupt ends it, with exit code 0. " +
		"With --output json a state is as the API sends it. The holder of an election's lock leads."
}

// Run shows the states of a lock, until ctx ends.
func (c *watchCmd) Run(ctx context.Context, con *console) error {
	if err := con.format.many(); err != nil {
		return err
	}
	client, err := c.client()
	if err != nil {
		return err
	}
	defer client.Close()
	watch, err := client.Watch(ctx, c.Lock)
	if err != nil {
		return unlessEnded(ctx, err)
	}
	defer watch.Close()
	for state, err := range watch.All(ctx) {
		if err == nil {
			err = con.lockState(state)
		}
		if err != nil {
			return unlessEnded(ctx, err)
		}
	}
	return nil
}

// unlessEnded forgives the failure of what was interrupted.
func unlessEnded(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// lockState writes the state of a lock on one line.
func (c *console) lockState(state api.WatchState) error {
	if c.format.documents() {
		return c.document(state)
	}
	parts := []string{state.State}
	for _, holder := range state.Holders {
		parts = append(parts, fmt.Sprintf("held by %s with token %d until %s", holder.OwnerID, holder.FencingToken,
			clock(holder.ExpiresAt)))
		if holder.Metadata != nil {
			parts = append(parts, string(holder.Metadata))
		}
	}
	if state.QueueLength > 0 {
		parts = append(parts, fmt.Sprintf("%d waiting", state.QueueLength))
	}
	return c.line(parts)
}

type waitsCmd struct {
	clientFlags
	Lock  string `arg:"" optional:"" help:"Only the waits connected with this lock. Default: the oldest waits of all locks."`
	Limit int    `help:"The most to list, up to 200." default:"100"`
}

// Run lists waits.
func (c *waitsCmd) Run(ctx context.Context, con *console) error {
	heading := []string{"OWNER", "WAITS FOR", "MODE", "SINCE", "BEHIND"}
	return answerList(ctx, con, c.clientFlags, heading, waitRow,
		func(ctx context.Context, gateway calls) ([]api.WaitOf, error) {
			waits, err := gateway.Waits(ctx, c.Lock, c.Limit)
			if waits.Truncated {
				con.note("there are more waits, or more owners that one waits for")
			}
			return waits.Waits, err
		})
}

func waitRow(wait api.WaitOf) []string {
	behind := make([]string, len(wait.For))
	for i, blocker := range wait.For {
		verb := "is before it"
		if blocker.Relation == "holds" {
			verb = "holds"
		}
		if blocker.Lock != wait.Lock {
			verb += " " + blocker.Lock
		}
		behind[i] = blocker.OwnerID + " (" + verb + ")"
	}
	mode := wait.Mode
	if wait.Scope == "subtree" {
		mode += ", subtree"
	}
	return []string{wait.OwnerID, wait.Lock, mode, clock(wait.QueuedAt), strings.Join(behind, ", ")}
}

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

// reach returns a client of one gateway, and a context for all that is asked of it, until done is called.
func (f connectionFlags) reach(
	ctx context.Context, url string, timeout time.Duration,
) (bounded context.Context, client *lockclient.Client, done func(), err error) {
	if timeout <= 0 {
		return nil, nil, nil, usagef("--timeout is %s, it must be positive", timeout)
	}
	if client, err = f.connect("--url", url); err != nil {
		return nil, nil, nil, err
	}
	bounded, cancel := context.WithTimeout(ctx, timeout)
	return bounded, client, func() { cancel(); client.Close() }, nil
}

// Run calls the gateway.
func (c *healthCmd) Run(ctx context.Context, con *console) error {
	ctx, client, done, err := c.reach(ctx, c.URL, c.Timeout)
	if err != nil {
		return err
	}
	defer done()
	probe, health := client.API().Alive, api.Health{Status: "ok"}
	if c.Ready {
		probe, health = client.API().Ready, api.Health{Status: "ready"}
	}
	if err := probe(ctx); err != nil {
		return err
	}
	return con.show(health, []field{{"status", health.Status}})
}

// drainInterval is the time between looks at what is still open.
const drainInterval = 200 * time.Millisecond

type drainCmd struct {
	connectionFlags
	outputFlag

	URL     string        `group:"connection" help:"Where the gateway is; not a load balancer." default:"http://127.0.0.1:8080"`
	Undo    bool          `help:"End the drain: the gateway is ready again."`
	Timeout time.Duration `group:"connection" help:"How long to wait until the clients have left, the gateway's --drain-delay included." default:"30s"`
}

// Help is shown by "fencegate drain --help".
func (drainCmd) Help() string {
	return "The gateway is not ready any more, and each answer ends its connection. After the gateway's --drain-delay, its " +
		"waits and streams end, so that clients continue at another gateway; waiters with a request ID keep their places. " +
		"All other requests are still answered. The command returns when no wait and no stream is left. It exits 7 if some " +
		"are after --timeout; the drain goes on. It needs the scope admin on all names."
}

// Run drains a gateway, and waits until its clients have left.
func (c *drainCmd) Run(ctx context.Context, con *console) error {
	ctx, client, done, err := c.reach(ctx, c.URL, c.Timeout)
	if err != nil {
		return err
	}
	defer done()
	gateway := admin.New(client)
	state, err := gateway.Drain(ctx, !c.Undo)
	for err == nil && state.Draining && state.Waiting+state.Streams > 0 {
		select {
		case <-ctx.Done():
			return &api.Problem{Code: api.CodeUnavailable, Title: "still draining", Detail: fmt.Sprintf(
				"After %s, %d acquires wait, and %d event streams are open. The drain goes on.",
				c.Timeout, state.Waiting, state.Streams)}
		case <-time.After(drainInterval):
			var next api.Drain
			if next, err = gateway.DrainState(ctx); err == nil {
				state = next
			} else if ctx.Err() != nil {
				err = nil // the timeout says it
			}
		}
	}
	if err != nil {
		return err
	}
	return con.show(state, []field{
		{"draining", strconv.FormatBool(state.Draining)},
		{"waiting", strconv.FormatInt(state.Waiting, 10)},
		{"streams", strconv.FormatInt(state.Streams, 10)},
	})
}
