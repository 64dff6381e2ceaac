package names

import (
	"slices"

	"github.com/fencegate/fencegate/internal/bench"
)

// Config says what is measured. Its tags make flags of it.
type Config struct {
	// Program is fencegate, which runs the gateways.
	Program     string `kong:"-"`
	DatabaseURL string `kong:"-"`
	// Progress is called with each line that reports a measurement.
	Progress func(line string) `kong:"-"`

	Names  []int `help:"How many names there are: a database for each. Ratios are to the first." default:"10000,10000000"`
	Rounds int   `help:"How often everything is measured." default:"5"`
	Calls  int   `help:"How many calls of each kind a round takes the median of." default:"100"`
}

const (
	namesMin = 1000 // so that some have a lease that runs
	namesMax = 100_000_000
)

// check returns bench.ErrInvalid for what makes no sense.
func (c Config) check() error {
	switch {
	case len(c.Names) < 2 || slices.Min(c.Names) < namesMin || slices.Max(c.Names) > namesMax:
		return bench.Invalid("--names must be two or more, each %d to %d", namesMin, namesMax)
	case c.Rounds < 1:
		return bench.Invalid("--rounds must be positive")
	case c.Calls < 1:
		return bench.Invalid("--calls must be positive")
	}
	return nil
}
