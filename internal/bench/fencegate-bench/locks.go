//go:build unix

package main

import (
	"context"
	"errors"
	"time"

	"github.com/fencegate/fencegate/internal/bench/locks"
)

type locksCmd struct {
	databaseFlags
	programFlags

	Measure       []string      `help:"What to measure: wake-up, cycles, crowd." enum:"wake-up,cycles,crowd" default:"wake-up,cycles,crowd"`
	Rounds        int           `help:"How often everything is measured." default:"3"`
	HandOffs      int           `help:"Wake-up: how many hand-offs of a lock are measured in a round." default:"500"`
	Clients       []int         `help:"Cycles: numbers of clients to measure with." default:"1,8,64"`
	Duration      time.Duration `help:"Cycles: how long one service is measured in a round." default:"2s"`
	WarmUp        time.Duration `help:"Cycles: how long each is run before the first round." default:"500ms"`
	Waiters       int           `help:"Crowd: how many wait for one lock." default:"10000"`
	CrowdProtocol string        `help:"Crowd: how they reach the gateways: h2c (HTTP/2, 200 to a connection), or http1 (a connection each)." enum:"h2c,http1" default:"h2c"`
	Idle          time.Duration `help:"Crowd: how long the load is observed while nothing happens." default:"10s"`
	Connections   int           `help:"Connections to the database, of each gateway." default:"16"`
	Output        string        `help:"text, or json: all samples." enum:"text,json" default:"text"`
}

// Help is shown by --help.
func (locksCmd) Help() string {
	return "Runs two gateways, etcd and Redis as processes of their own, and measures them in turn: how soon the next waiter is granted a lock that is " +
		"released, how many locks are acquired and released a second, and what thousands of waiters cost. What is not on the machine is skipped. " +
		"The ratios are of the same round: quote them, not single figures."
}

// Run measures.
func (c *locksCmd) Run(ctx context.Context, to output) (err error) {
	program, _, err := c.programs()
	if err != nil {
		return err
	}
	db, err := c.open(ctx, nil, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.close()) }()
	report, err := locks.Run(ctx, locks.Config{
		Program: program, DatabaseURL: db.url, Connections: c.Connections,
		Measure: c.Measure, Rounds: c.Rounds, HandOffs: c.HandOffs,
		Clients: c.Clients, Duration: c.Duration, WarmUp: c.WarmUp,
		Waiters: c.Waiters, Protocol: c.CrowdProtocol, Idle: c.Idle, Settle: locks.DefaultSettle,
		Progress: to.progress,
	})
	if err != nil {
		return err
	}
	if c.Output == "json" {
		return writeJSON(to.out, report)
	}
	return report.WriteTables(to.out)
}
