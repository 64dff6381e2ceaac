package locks

import (
	"fmt"
	"slices"
	"time"

	"github.com/fencegate/fencegate/internal/bench"
)

// Config says what is measured. Its tags make flags of it.
type Config struct {
	// Program is fencegate, of which gateways are run.
	Program     string `kong:"-"`
	DatabaseURL string `kong:"-"`
	// Settle is how long nothing happens before the crowd's load is observed: PostgreSQL's backends may be that late in
	// reporting what they did.
	Settle time.Duration `kong:"-"`
	// Progress is called with each line that reports a measurement.
	Progress func(line string) `kong:"-"`

	Measure     []string      `help:"What to measure: wake-up, cycles, leases, crowd." enum:"wake-up,cycles,leases,crowd" default:"wake-up,cycles,leases,crowd"`
	Rounds      int           `help:"How often everything is measured." default:"3"`
	HandOffs    int           `help:"Wake-up: how many hand-offs of a lock are measured in a round." default:"500"`
	Gateways    []int         `help:"Wake-up, cycles: numbers of gateways to measure with." default:"1,2"`
	Clients     []int         `help:"Cycles, leases: numbers of clients to measure with." default:"1,8,64"`
	Duration    time.Duration `help:"Cycles, leases: how long one service is measured in a round." default:"2s"`
	WarmUp      time.Duration `help:"Cycles, leases: how long each is run before the first round." default:"500ms"`
	RedisFsync  bool          `name:"redis-fsync" help:"Leases: Redis flushes each change before it answers (appendfsync always). Default: it keeps nothing on disk."`
	Waiters     int           `help:"Crowd: how many wait for one lock." default:"10000"`
	Protocol    string        `name:"crowd-protocol" help:"Crowd: how they reach the gateways: h2c (HTTP/2, 200 to a connection), or http1 (a connection each)." enum:"h2c,http1" default:"h2c"`
	Idle        time.Duration `help:"Crowd, leases: how long the load is observed while nothing happens." default:"10s"`
	Connections int           `help:"Connections to the database, of each gateway." default:"16"`
}

// The measurements, and the protocols of the crowd.
const (
	WakeUp = "wake-up"
	Cycles = "cycles"
	Leases = "leases"
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
		return bench.Invalid("--measure names nothing")
	case len(c.Clients) == 0 || c.Rounds < 1 || c.Duration <= 0 || c.WarmUp < 0:
		return bench.Invalid("--clients, --rounds and --duration must be positive")
	case c.HandOffs < 1:
		return bench.Invalid("--hand-offs must be positive")
	case c.Waiters < 2 || c.Idle <= 0 || c.Settle < 0:
		return bench.Invalid("--waiters must be at least 2, and --idle positive")
	case c.Protocol != HTTP1 && c.Protocol != HTTP2:
		return bench.Invalid("--crowd-protocol must be %s or %s", HTTP1, HTTP2)
	case c.Connections < 2:
		return bench.Invalid("--connections must be at least 2")
	case len(c.Gateways) == 0 || slices.Min(c.Gateways) < 1:
		return bench.Invalid("--gateways must be positive")
	}
	for _, clients := range c.Clients {
		if clients < 1 {
			return bench.Invalid("--clients must be positive")
		}
	}
	return nil
}

// progress reports a sample.
func (c Config) progress(format string, args ...any) { c.Progress(fmt.Sprintf(format, args...)) }
