package writes

import (
	"fmt"
	"slices"
	"time"

	"github.com/fencegate/fencegate/internal/bench"
)

// Config says what is measured.
type Config struct {
	// Program is fencegate, which runs the gateways. FloorProgram serves the empty handler, see floor.Arguments.
	Program      string
	FloorProgram string
	DatabaseURL  string
	// GatewayURL is that of a gateway that runs already, before the same database. Empty: one is run.
	GatewayURL string
	// Measure are the measurements to make, Targets what takes part in them; where none are named, all.
	Measure []string
	Targets []string
	Clients []int
	// Rounds is how often every target is measured with every number of clients; Duration how long each time, after a WarmUp.
	Rounds           int
	Duration, WarmUp time.Duration
	// Resources are written to, and then Hot of them; 0: no such measurement.
	Resources, Hot int
	ValueBytes     int
	// Connections to the database, of the store and of the gateway alike.
	Connections int
	// FlushDelay is by how much the database's flushes were slowed; it is only reported.
	FlushDelay time.Duration
	// Sizes of values, in bytes, and numbers of Fences, of the measurements of these names.
	Sizes, Fences []int
	// ZombieRates are how many writes of zombies a second the gateway is sent beside honest ones; 0: as many as they can.
	ZombieRates []float64
	// Dashboards are how many are open, of the measurement of this name.
	Dashboards int
	// Progress is told what was measured, line by line.
	Progress func(line string)
}

// The measurements.
const (
	Throughput = "throughput"
	Latency    = "latency"
	Sizes      = "sizes"
	Fences     = "fences"
	Refusals   = "refusals"
	Dashboards = "dashboards"
	Flush      = "flush" // throughput, on a database whose flushes were slowed
)

// Limits of the configuration.
const (
	clientsMax    = 4096
	resourcesMax  = 10_000_000
	valueBytesMax = 1 << 20
	dashboardsMax = 1000
)

// check returns bench.ErrInvalid for what makes no sense.
func (c Config) check() error {
	switch {
	case len(c.Clients) == 0 || c.Rounds < 1 || c.Duration <= 0 || c.WarmUp < 0:
		return invalid("--clients, --rounds and --duration must be positive")
	case len(c.Measure) == 0:
		return invalid("--measure names nothing")
	case c.ValueBytes < 8 || c.ValueBytes > valueBytesMax:
		return invalid("--value-bytes must be 8 to %d", valueBytesMax)
	case c.Connections < 2:
		return invalid("--connections must be at least 2")
	case c.Resources < 0 || c.Resources > resourcesMax || c.Hot < 0 || c.Hot > resourcesMax || c.Resources+c.Hot == 0:
		return invalid("--resources and --hot must be 0 to %d, and one of them positive", resourcesMax)
	}
	for _, clients := range c.Clients {
		if clients < 1 || clients > clientsMax {
			return invalid("--clients must be 1 to %d, not %d", clientsMax, clients)
		}
	}
	for _, size := range c.Sizes {
		if size < 8 || size > valueBytesMax {
			return invalid("--sizes must be 8 to %d, not %d", valueBytesMax, size)
		}
	}
	for _, fences := range c.Fences {
		if fences < 1 || fences > resourcesMax {
			return invalid("--fences must be 1 to %d, not %d", resourcesMax, fences)
		}
	}
	for _, rate := range c.ZombieRates {
		if rate < 0 {
			return invalid("--zombie-rates must not be negative, as %g is", rate)
		}
	}
	if c.Dashboards < 0 || c.Dashboards > dashboardsMax {
		return invalid("--dashboards must be 0 to %d, not %d", dashboardsMax, c.Dashboards)
	}
	for _, name := range c.Targets {
		if !slices.Contains(TargetNames(), name) {
			return invalid("--targets: there is no %q; there are %v", name, TargetNames())
		}
	}
	return nil
}

// wants reports whether a target takes part.
func (c Config) wants(name string) bool {
	return len(c.Targets) == 0 || slices.Contains(c.Targets, name)
}

func (c Config) flushDelayMS() float64 { return float64(c.FlushDelay.Microseconds()) / 1000 }

func (c Config) progress(format string, args ...any) { c.Progress(fmt.Sprintf(format, args...)) }

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %s", bench.ErrInvalid, fmt.Sprintf(format, args...))
}
