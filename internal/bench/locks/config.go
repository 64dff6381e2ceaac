package locks

import (
	"fmt"
	"time"

	"github.com/fencegate/fencegate/internal/bench"
)

// Config says what is measured.
type Config struct {
	// Program is fencegate, of which gateways are run.
	Program     string
	DatabaseURL string
	// Connections to the database that each gateway may have.
	Connections int
	// Measure are the measurements to make: WakeUp, Cycles, Crowd.
	Measure []string
	Rounds  int

	// HandOffs are measured in a round, of each service.
	HandOffs int

	// Clients are the numbers of clients of the cycles; each is measured for a Duration, after a WarmUp.
	Clients          []int
	Duration, WarmUp time.Duration

	// Waiters of the crowd wait for one lock, over Protocol (HTTP1 or HTTP2), while the load is observed for an Idle time;
	// before that, nothing happens for a time of Settle, since PostgreSQL's backends may be that late in reporting what
	// they did.
	Waiters      int
	Protocol     string
	Idle, Settle time.Duration

	// Progress is called with each line that reports a measurement.
	Progress func(line string)
}

// The measurements, and the protocols of the crowd.
const (
	WakeUp = "wake-up"
	Cycles = "cycles"
	Crowd  = "crowd"

	HTTP1 = "http1"
	HTTP2 = "h2c"
)

// DefaultSettle is as late as PostgreSQL's backends may report: 10 s when they are idle.
const DefaultSettle = 11 * time.Second

// waitMax bounds every wait for a lock: longer than any should take, and as long as the API allows.
const waitMax = 10 * time.Minute

// ttl of leases, sessions and keys: longer than a cycle takes.
const ttl = time.Minute

// check returns bench.ErrInvalid for what makes no sense.
func (c Config) check() error {
	switch {
	case len(c.Measure) == 0:
		return invalid("--measure names nothing")
	case len(c.Clients) == 0 || c.Rounds < 1 || c.Duration <= 0 || c.WarmUp < 0:
		return invalid("--clients, --rounds and --duration must be positive")
	case c.HandOffs < 1:
		return invalid("--hand-offs must be positive")
	case c.Waiters < 2 || c.Idle <= 0 || c.Settle < 0:
		return invalid("--waiters must be at least 2, and --idle positive")
	case c.Protocol != HTTP1 && c.Protocol != HTTP2:
		return invalid("--crowd-protocol must be " + HTTP1 + " or " + HTTP2)
	case c.Connections < 2:
		return invalid("--connections must be at least 2")
	}
	for _, clients := range c.Clients {
		if clients < 1 {
			return invalid("--clients must be positive")
		}
	}
	return nil
}

func invalid(what string) error { return fmt.Errorf("%w: %s", bench.ErrInvalid, what) }

// progress reports a sample.
func (c Config) progress(format string, args ...any) { c.Progress(fmt.Sprintf(format, args...)) }
