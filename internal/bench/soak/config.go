package soak

import (
	"fmt"
	"time"

	"github.com/fencegate/fencegate/internal/bench"
)

// Config says how long, and how much. Its tags make flags of it.
type Config struct {
	DatabaseURL string `kong:"-"`
	// Program is fencegate, which runs as processes of its own.
	Program string `kong:"-"`
	// Progress is called with each line that reports a sample.
	Progress func(line string) `kong:"-"`

	Duration time.Duration `help:"How long." default:"30m"`
	Every    time.Duration `help:"Time between two samples." default:"20s"`
	Clients  int           `help:"Clients that contend for locks." default:"24"`
	Locks    int           `help:"Locks that they contend for." default:"128"`
	Names    int           `help:"New names that are locked, written to and released, each second." default:"50"`
	Snapshot time.Duration `help:"How long a snapshot is held open, after a third of the time." default:"1m"`
}

// samplesLeast is in each third: a median of fewer says little.
const samplesLeast = 3

func (c Config) check() error {
	switch {
	case c.Every <= 0 || c.Duration < 3*samplesLeast*c.Every:
		return bench.Invalid("--duration must be at least %d times --every", 3*samplesLeast)
	case c.Names < 1 || c.Names > 1000:
		return bench.Invalid("--names must be 1 to 1000")
	case c.Snapshot < 0 || c.Snapshot > c.Duration/3:
		return bench.Invalid("--snapshot must be at most a third of --duration")
	}
	return nil
}

func (c Config) progress(format string, args ...any) { c.Progress(fmt.Sprintf(format, args...)) }
