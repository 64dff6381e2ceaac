//go:build unix

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/fencegate/fencegate/internal/bench/peers"
	"github.com/fencegate/fencegate/internal/bench/writes"
)

type writesCmd struct {
	databaseFlags
	programFlags

	Config writes.Config `embed:""`

	Output string `help:"text, or json: all samples." enum:"text,json" default:"text"`
	Goals  bool   `help:"Compare what was measured with the targets that we set ourselves."`
	JSON   string `help:"File that all samples are written to, too." type:"path" placeholder:"FILE"`
	Plot   string `help:"File that the throughput is drawn into, as SVG." type:"path" placeholder:"FILE"`
	From   string `help:"Measure nothing: show the samples in this file, which --json wrote." type:"existingfile" placeholder:"FILE"`
}

// Help is shown by --help.
func (writesCmd) Help() string {
	return "Writes per second and latencies of fenced writes, through the store and through a gateway process, beside " +
		"direct, unfenced upserts, a fence " +
		"made by hand, etcd, ZooKeeper and Redis, in the same run. This process is the load; all else runs in processes of " +
		"its own. What is not on the " +
		"machine is skipped. The ratios are of the same round: quote them, not single figures."
}

// Run measures.
func (c *writesCmd) Run(ctx context.Context, to output) (err error) {
	if c.Config.GatewayURL != "" && c.DatabaseURL == "" {
		return errors.New("--url needs --database-url: leases are taken there, and direct writes go there")
	}
	var report writes.Report
	if c.From == "" {
		report, err = c.measure(ctx, to.progress)
	} else {
		report, err = readReport(c.From)
	}
	if err != nil {
		return err
	}
	if err := c.writeFiles(report); err != nil {
		return err
	}
	if c.Output == "json" {
		return writeJSON(to.out, report)
	}
	if err := report.WriteTables(to.out); err != nil {
		return err
	}
	if c.Goals {
		if err := report.WriteGoals(to.out); err != nil {
			return err
		}
	}
	if len(report.Failed) > 0 {
		return fmt.Errorf("%d measurements failed; they are named above", len(report.Failed))
	}
	return nil
}

// measure makes the measurements: what slows flushes down with a database of its own, after all else.
func (c *writesCmd) measure(ctx context.Context, progress func(string)) (report writes.Report, err error) {
	program, self, err := c.programs()
	if err != nil {
		return report, err
	}
	config := c.Config
	config.Program, config.FloorProgram, config.Progress, config.FlushDelay = program, self, progress, 0
	config.Measure = slices.DeleteFunc(slices.Clone(c.Config.Measure),
		func(measure string) bool { return measure == writes.Flush })
	if len(config.Measure) > 0 {
		if report, err = c.run(ctx, config, 0); err != nil {
			return report, err
		}
	}
	if len(config.Measure) == len(c.Config.Measure) {
		return report, nil
	}
	var slowed writes.Report
	switch slowed, err = c.runSlowed(ctx, config); {
	case errors.Is(err, peers.ErrAbsent):
		progress("skipped: " + err.Error())
		slowed.Skipped, err = map[string]string{writes.Flush: err.Error()}, nil
	case err != nil:
		return report, err
	}
	if len(config.Measure) == 0 {
		return slowed, nil
	}
	report.Add(slowed)
	return report, nil
}

// runSlowed measures what writes to PostgreSQL, with flushes slowed down, on many resources.
func (c *writesCmd) runSlowed(ctx context.Context, config writes.Config) (writes.Report, error) {
	if c.DatabaseURL != "" {
		return writes.Report{}, fmt.Errorf("a way to slow the flushes of the database at --database-url down: %w",
			peers.ErrAbsent)
	}
	config.Measure, config.FlushDelay, config.GatewayURL, config.Hot = []string{writes.Flush}, c.Config.FlushDelay, "", 0
	config.Targets = slices.DeleteFunc([]string{"direct", "handmade", "store", "http"}, func(name string) bool {
		return len(c.Config.Targets) > 0 && !slices.Contains(c.Config.Targets, name)
	})
	if len(config.Targets) == 0 {
		return writes.Report{}, fmt.Errorf("a target of --targets that writes to PostgreSQL, to slow its flushes down: %w",
			peers.ErrAbsent)
	}
	return c.run(ctx, config, c.Config.FlushDelay)
}

// run makes measurements with a database that it opens and closes.
func (c *writesCmd) run(
	ctx context.Context, config writes.Config, flushDelay time.Duration,
) (report writes.Report, err error) {
	db, err := c.open(ctx, manyConnections, flushDelay)
	if err != nil {
		return report, err
	}
	defer func() { err = errors.Join(err, db.close()) }()
	config.DatabaseURL = db.url
	return writes.Run(ctx, config)
}

func (c *writesCmd) writeFiles(report writes.Report) error {
	if c.JSON != "" {
		if err := writeTo(c.JSON, func(file *os.File) error { return writeJSON(file, report) }); err != nil {
			return fmt.Errorf("--json: %w", err)
		}
	}
	if c.Plot != "" {
		if err := writeTo(c.Plot, func(file *os.File) error { return report.WritePlot(file) }); err != nil {
			return fmt.Errorf("--plot: %w", err)
		}
	}
	return nil
}

func writeTo(path string, write func(*os.File) error) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(write(file), file.Close())
}

func readReport(path string) (report writes.Report, err error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return report, err
	}
	if err := json.Unmarshal(content, &report); err != nil {
		return report, fmt.Errorf("--from %s: %w", path, err)
	}
	return report, nil
}
