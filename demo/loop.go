//go:build unix

package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

// Loop tells the fenced story again and again, before gateways that run anyway: for somebody who looks at their dashboard. It leaves the
// locks and records demo/job-1 to demo/job-5 behind.
type Loop struct {
	// Program is the fencegate binary; it runs the workers ("demo worker").
	Program string
	// URLs are those of gateways before one database. A asks the first, B the last.
	URLs []string
	// Every is the time from the beginning of one story to that of the next, if that has ended by then; a story takes about four seconds.
	Every time.Duration
	// Rounds is how many are told; 0: they go on until the context ends.
	Rounds int
	// JSON tells events as JSON, one a line.
	JSON bool
	// Out is where the stories are told.
	Out io.Writer
}

// cast is how many jobs there are, and workers who do them in turn.
const cast = 5

// Run tells the stories. It returns nil when they are told or ctx ends, and ErrUnexpected as soon as a zombie's write was stored. A story that
// could not be told to its end, as a gateway was away, is told as such, and the next one follows; if it was the last of Rounds, its error is returned.
func (h Loop) Run(ctx context.Context) error {
	stage := &stage{narrator: newNarrator(h.Out, h.JSON), urls: h.URLs}
	tick := time.NewTicker(h.Every)
	defer tick.Stop()
	for n := 1; ; n++ {
		err := h.tell(ctx, stage, n)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, ErrUnexpected) || n == h.Rounds:
			return err
		case err != nil:
			stage.tell(Event{Event: "failed", Variant: "fenced", Text: "The story could not be told: " + err.Error()})
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// tell tells the nth story, and looks at what is stored in the end.
func (h Loop) tell(ctx context.Context, stage *stage, n int) error {
	ctx, cancel := context.WithTimeout(ctx, roundTimeout)
	defer cancel()
	p := playing(h.Program, "fenced", fmt.Sprintf("demo/job-%d", n%cast+1), "")
	p.a.Name, p.b.Name = fmt.Sprintf("worker-%d", n%cast+1), fmt.Sprintf("worker-%d", (n+1)%cast+1)
	stage.tell(Event{Event: "round", Variant: "fenced", Text: fmt.Sprintf("Round %d: %s", n, p.a.Lock)})
	if err := p.act(ctx, stage); err != nil {
		return err
	}
	value, err := stage.fencedValue(ctx, p.a.Lock)
	if err != nil {
		return err
	}
	stage.tell(Event{Event: "stored", Variant: "fenced", Value: value, Text: fmt.Sprintf("what is stored: %q", value)})
	if value != p.b.value() {
		return fmt.Errorf("%w: %q is stored in %s, where %s wrote last", ErrUnexpected, value, p.a.Lock, p.b.Name)
	}
	return nil
}
