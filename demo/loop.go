package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

// Loop runs the fenced variant again and again, on gateways that already run, to show it on their dashboard. It leaves
// the locks and records demo/job-1 to demo/job-5 behind.
type Loop struct {
	// Program is the fencegate binary; it runs the workers ("demo worker").
	Program string
	// URLs are of gateways on one database. A uses the first, B the last.
	URLs []string
	// Every is the time from the start of one round to the start of the next. A round takes about four seconds, and
	// delays the next one if it takes longer.
	Every time.Duration
	// Rounds is how many there are; 0: until the context ends.
	Rounds int
	// JSON prints events as JSON, one a line.
	JSON bool
	// Out is where events are printed.
	Out io.Writer
}

// jobs is the number of jobs, and of workers that do them in turn.
const jobs = 5

// Run runs the rounds. It returns nil after the last one or when ctx ends, and ErrUnexpected as soon as a zombie's
// write was stored. A round that fails because a gateway is unreachable is printed as failed, and the next one follows.
// Run returns the error of the last round.
func (l Loop) Run(ctx context.Context) error {
	setup := &setup{printer: newPrinter(l.Out, l.JSON), urls: l.URLs}
	tick := time.NewTicker(l.Every)
	defer tick.Stop()
	for n := 1; ; n++ {
		err := l.round(ctx, setup, n)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, ErrUnexpected) || n == l.Rounds:
			return err
		case err != nil:
			setup.print(Event{Event: "failed", Variant: "fenced", Text: "The round failed: " + err.Error()})
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// round runs the nth round, and checks what is stored in the end.
func (l Loop) round(ctx context.Context, setup *setup, n int) error {
	ctx, cancel := context.WithTimeout(ctx, roundTimeout)
	defer cancel()
	r := newRound(workersOf(l.Program), "fenced", fmt.Sprintf("demo/job-%d", n%jobs+1), "")
	r.a.Name, r.b.Name = fmt.Sprintf("worker-%d", n%jobs+1), fmt.Sprintf("worker-%d", (n+1)%jobs+1)
	setup.print(Event{Event: "round", Variant: "fenced", Text: fmt.Sprintf("Round %d: %s", n, r.a.Lock)})
	if err := r.run(ctx, setup); err != nil {
		return err
	}
	value, err := setup.fencedValue(ctx, r.a.Lock)
	if err != nil {
		return err
	}
	setup.print(Event{Event: "stored", Variant: "fenced", Value: value, Text: fmt.Sprintf("what is stored: %q", value)})
	if value != r.b.value() {
		return fmt.Errorf("%w: %q is stored in %s, where %s wrote last", ErrUnexpected, value, r.a.Lock, r.b.Name)
	}
	return nil
}
