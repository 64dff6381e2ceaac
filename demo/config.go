package demo

import (
	"io"
	"time"

	"github.com/fencegate/fencegate/lockclient"
)

// Config is what every demo takes.
type Config struct {
	// Program is the fencegate binary; it runs the gateway ("serve") and the workers ("demo worker").
	Program string
	// DatabaseURL is the PostgreSQL that the gateway and the plain table use. DatabaseName describes it.
	DatabaseURL, DatabaseName string
	// Suffix ends the names of locks. It keeps apart several runs on one database.
	Suffix string
	// Gateways, if any, are URLs of gateways on one database that already run: the demo runs its fenced variant before
	// them, again and again, to show it on their dashboard. A uses the first, B the last. It leaves the locks and records
	// demo/job-1 to demo/job-5 behind. The database is not used then.
	Gateways []string
	// Connect makes a client of one of the Gateways. Default: lockclient.New. Environment has the same settings for
	// workers.
	Connect     func(url string, options ...lockclient.Option) (*lockclient.Client, error)
	Environment []string
	// Every is the time from the start of one of these rounds to the start of the next. A round takes about four seconds,
	// and delays the next one if it takes longer.
	Every time.Duration
	// Rounds is how many of them there are; 0: until the context ends.
	Rounds int
	// JSON prints events as JSON, one a line.
	JSON bool
	// Out is where events are printed.
	Out io.Writer
}

const (
	demoTTL      = 2 * time.Second
	roundTimeout = time.Minute
	// workOfA is time enough to freeze A before it writes, on a machine that is busy with other things. A is frozen for
	// longer than that.
	workOfA = demoTTL
	workOfB = 200 * time.Millisecond
)

func (c Config) newSetup() *setup {
	if c.Connect == nil {
		c.Connect = lockclient.New
	}
	return &setup{
		printer: newPrinter(c.Out, c.JSON), program: c.Program, databaseURL: c.DatabaseURL, databaseName: c.DatabaseName,
		urls: c.Gateways, connect: c.Connect, environment: c.Environment,
	}
}
