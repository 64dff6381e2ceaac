package writes

import (
	"fmt"
	"slices"
	"time"

	"github.com/fencegate/fencegate/internal/bench"
)

// Config says what is measured. Its tags make flags of it.
type Config struct {
	// Program is fencegate, which runs the gateways. FloorProgram serves the empty handler, see floor.Arguments.
	Program      string `kong:"-"`
	FloorProgram string `kong:"-"`
	DatabaseURL  string `kong:"-"`
	// Progress is called with each line that reports a measurement.
	Progress func(line string) `kong:"-"`

	Measure     []string      `help:"What to measure: throughput, latency, sizes, fences, refusals, dashboards, flush." enum:"throughput,latency,sizes,fences,refusals,dashboards,flush" default:"throughput,refusals,flush"`
	Targets     []string      `help:"What takes part: direct, handmade, store, store-unfenced, http, http-pooled, http-key, http-tls, ndjson, ndjson-stream, floor, etcd, zookeeper, redis, redis-everysec. Default: all." placeholder:"TARGET,…"`
	GatewayURL  string        `name:"url" help:"A gateway that runs already, before the database of --database-url. Without one, a gateway is run." placeholder:"URL"`
	Gateways    []int         `help:"Throughput: numbers of gateways to measure http with, too, which its clients take turns between." placeholder:"2,4"`
	Clients     []int         `help:"Numbers of clients to measure with." default:"1,8,64,256"`
	Rounds      int           `help:"How often everything is measured." default:"3"`
	Duration    time.Duration `help:"How long one target is measured in a round." default:"2s"`
	WarmUp      time.Duration `help:"How long it is run before that." default:"500ms"`
	Resources   int           `help:"How many resources are written to; 0: none." default:"10000"`
	Hot         int           `help:"How many hot resources are written to after that; 0: none." default:"16"`
	ValueBytes  int           `help:"Size of the values." default:"256"`
	Connections int           `help:"Connections to the database, of the store and of the gateway alike." default:"16"`
	Sizes       []int         `help:"Sizes: the sizes of values." default:"64,256,1024,4096,16384,65536,262144,1048576"`
	Fences      []int         `help:"Fences: how many there are." default:"1000,10000,100000,1000000"`
	ZombieRates []float64     `help:"Refusals: how many writes a second zombies make beside honest writers; 0: as many as they can." default:"1000,10000,0"`
	Dashboards  int           `help:"Dashboards: how many are open." default:"20"`
	// FlushDelay is only reported: the database was slowed down before.
	FlushDelay time.Duration `help:"Flush: how much longer each flush of the private PostgreSQL takes." default:"1ms"`
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
	gatewaysMax   = 16
)

// check returns bench.ErrInvalid for what makes no sense.
func (c Config) check() error {
	switch {
	case len(c.Clients) == 0 || c.Rounds < 1 || c.Duration <= 0 || c.WarmUp < 0:
		return bench.Invalid("--clients, --rounds and --duration must be positive")
	case len(c.Measure) == 0:
		return bench.Invalid("--measure names nothing")
	case c.ValueBytes < 8 || c.ValueBytes > valueBytesMax:
		return bench.Invalid("--value-bytes must be 8 to %d", valueBytesMax)
	case c.Connections < 2:
		return bench.Invalid("--connections must be at least 2")
	case c.Resources < 0 || c.Resources > resourcesMax || c.Hot < 0 || c.Hot > resourcesMax || c.Resources+c.Hot == 0:
		return bench.Invalid("--resources and --hot must be 0 to %d, and one of them positive", resourcesMax)
	}
	for _, gateways := range c.Gateways {
		if gateways < 2 || gateways > gatewaysMax {
			return bench.Invalid("--gateways must be 2 to %d, not %d", gatewaysMax, gateways)
		}
	}
	if len(c.Gateways) > 0 && c.GatewayURL != "" {
		return bench.Invalid("--gateways are run by this program: leave --url out")
	}
	for _, clients := range c.Clients {
		if clients < 1 || clients > clientsMax {
			return bench.Invalid("--clients must be 1 to %d, not %d", clientsMax, clients)
		}
	}
	for _, size := range c.Sizes {
		if size < 8 || size > valueBytesMax {
			return bench.Invalid("--sizes must be 8 to %d, not %d", valueBytesMax, size)
		}
	}
	for _, fences := range c.Fences {
		if fences < 1 || fences > resourcesMax {
			return bench.Invalid("--fences must be 1 to %d, not %d", resourcesMax, fences)
		}
	}
	for _, rate := range c.ZombieRates {
		if rate < 0 {
			return bench.Invalid("--zombie-rates must not be negative, as %g is", rate)
		}
	}
	if c.Dashboards < 0 || c.Dashboards > dashboardsMax {
		return bench.Invalid("--dashboards must be 0 to %d, not %d", dashboardsMax, c.Dashboards)
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

func (c Config) flushDelayMS() float64 { return float64(c.FlushDelay.Microseconds()) / 1000 }

func (c Config) progress(format string, args ...any) { c.Progress(fmt.Sprintf(format, args...)) }
