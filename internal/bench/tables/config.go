package tables

import (
	"fmt"
	"slices"
	"time"

	"github.com/fencegate/fencegate/internal/bench"
)

// Config says what is measured. Its tags make flags of it.
type Config struct {
	DatabaseURL string `kong:"-"`
	// Progress is called with each line that reports a measurement.
	Progress func(line string) `kong:"-"`

	Measure       []string      `help:"What to measure: writes, five, bulk, plans, pgbench." enum:"writes,five,bulk,plans,pgbench" default:"writes,five,bulk,plans,pgbench"`
	Targets       []string      `help:"What takes part in writes and pgbench: bare, pipelined, guarded, protected, protected-implicit, partitioned, partitioned-protected, settings, by-hand. Default: all." placeholder:"TARGET,…"`
	Clients       []int         `help:"Numbers of clients to measure with." default:"1,8,64"`
	Rounds        int           `help:"How often everything is measured." default:"10"`
	Duration      time.Duration `help:"How long one target is measured in a round; by pgbench whole seconds." default:"500ms"`
	WarmUp        time.Duration `help:"How long it is run before that." default:"100ms"`
	Rows          int           `help:"Rows of each table, and fences." default:"1000000"`
	BulkRows      int           `help:"Bulk: how many rows one statement updates." default:"100000"`
	BulkResources int           `help:"Bulk: of how many resources, beside one." default:"1000"`
	// PgbenchTransactions are those of each of pgbench's clients; 0: as many as they can in Duration.
	PgbenchTransactions int `kong:"-"`
	// FlushDelay is only reported: the database was slowed down before.
	FlushDelay time.Duration `help:"How much longer each flush of the private PostgreSQL takes." default:"0s"`
}

// The measurements.
const (
	Writes  = "writes"
	Five    = "five"
	Bulk    = "bulk"
	Plans   = "plans"
	Pgbench = "pgbench"
)

// Limits of the configuration.
const (
	clientsMax = 4096
	rowsMax    = 10_000_000
)

// rowsOfResource is how many rows of the clients' tables belong to one resource.
const rowsOfResource = 5

// check returns bench.ErrInvalid for what makes no sense.
func (c Config) check() error {
	switch {
	case len(c.Clients) == 0 || c.Rounds < 1 || c.Duration <= 0 || c.WarmUp < 0:
		return bench.Invalid("--clients, --rounds and --duration must be positive")
	case len(c.Measure) == 0:
		return bench.Invalid("--measure names nothing")
	case c.BulkRows < 1 || c.BulkRows > rowsMax || c.BulkResources < 1 || c.BulkResources > c.BulkRows:
		return bench.Invalid("--bulk-rows must be 1 to %d, and --bulk-resources no more than that", rowsMax)
	case c.Rows > rowsMax:
		return bench.Invalid("--rows must be at most %d", rowsMax)
	}
	for _, clients := range c.Clients {
		if clients < 1 || clients > clientsMax || clients*rowsOfResource > c.Rows {
			return bench.Invalid("--clients must be 1 to %d, and --rows at least %d for each", clientsMax, rowsOfResource)
		}
	}
	for _, name := range c.Targets {
		if !slices.Contains(TargetNames(), name) {
			return bench.Invalid("--targets: there is no %q; there are %v", name, TargetNames())
		}
	}
	return nil
}

// wants reports whether a target takes part.
func (c Config) wants(name string) bool {
	return len(c.Targets) == 0 || slices.Contains(c.Targets, name)
}

func (c Config) progress(format string, args ...any) { c.Progress(fmt.Sprintf(format, args...)) }
