package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/charmbracelet/x/term"

	"github.com/fencegate/fencegate/internal/top"
	"github.com/fencegate/fencegate/lockclient"
	"github.com/fencegate/fencegate/lockclient/admin"
)

type topCmd struct {
	gatewayFlags
	outputFlag

	Interval time.Duration `help:"Time between two refreshes." default:"2s"`
	Range    time.Duration `help:"Time that the small charts cover, 1m to 24h." default:"5m"`
	Once     bool          `help:"Print the current state, and end. This is the default if the output is no terminal, or a dumb one."`
	Rows     int           `help:"With --once: how many rejections and locks to print." default:"20"`
}

// Help is shown by "fencegate top --help".
func (topCmd) Help() string {
	return "Shows writes and rejections, holders and waiters, the database and the gateways. Press ? for the keys. " +
		"NO_COLOR turns colours off."
}

// Run shows until the user has seen enough.
func (c *topCmd) Run(ctx context.Context, con *console) error {
	switch {
	case c.Interval < 200*time.Millisecond:
		return usagef("--interval is %s, it must be at least 200ms", c.Interval)
	case c.Range < time.Minute || c.Range > 24*time.Hour:
		return usagef("--range is %s, it must be 1m to 24h", c.Range)
	case c.Rows < 0:
		return usagef("--rows is %d, it can't be negative", c.Rows)
	}
	client, err := c.client()
	if err != nil {
		return err
	}
	defer client.Close()
	out, isTerminal := con.out.(*os.File)
	isTerminal = isTerminal && term.IsTerminal(out.Fd()) && os.Getenv("TERM") != "dumb"
	colour := isTerminal && os.Getenv("NO_COLOR") == ""
	if c.Once || con.format.documents() || !isTerminal {
		return c.once(ctx, con, client, colour)
	}
	return top.Run(ctx, admin.New(client), top.Options{
		URL: c.shownURL(), Interval: c.Interval, Span: c.Range, Colour: colour, Input: con.in, Output: out,
	})
}

// topTimeout bounds the one look of --once.
const topTimeout = 30 * time.Second

func (c *topCmd) once(ctx context.Context, con *console, client *lockclient.Client, colour bool) error {
	ctx, cancel := context.WithTimeout(ctx, topTimeout)
	defer cancel()
	if con.format.documents() {
		overview, err := admin.New(client).Overview(ctx, c.Range)
		if err != nil {
			return err
		}
		return con.document(overview)
	}
	snapshot, err := top.Read(ctx, admin.New(client), c.Range)
	if err != nil {
		return err
	}
	now := time.Now()
	view := top.View{Snapshot: snapshot, URL: c.shownURL(), Span: c.Range, At: now, Now: now, Width: widthOf(con.out),
		Colour: colour}
	_, err = fmt.Fprintln(con.out, strings.Join(top.Report(view, c.Rows), "\n"))
	return err
}

func (c *topCmd) shownURL() string { return strings.Join(c.urls(), ", ") }

// plainWidth is that of what is no terminal.
const plainWidth = 160

func widthOf(out io.Writer) int {
	if file, ok := out.(*os.File); ok {
		if width, _, err := term.GetSize(file.Fd()); err == nil && width > 0 {
			return width
		}
	}
	return plainWidth
}
