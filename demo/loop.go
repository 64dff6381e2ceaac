package demo

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// jobs is the number of jobs, and of workers that do them in turn.
const jobs = 5

// loop runs the fenced variant again and again. It returns nil after the last round or when ctx ends, and ErrUnexpected
// as soon as a stale write was stored. A round that fails because a gateway is unreachable is printed as failed, and the
// next one follows. It returns the error of the last round.
func (c Config) loop(ctx context.Context, failure Failure) error {
	setup := c.newSetup()
	defer failure.Stop()
	tick := time.NewTicker(c.Every)
	defer tick.Stop()
	for n := 1; ; n++ {
		err := c.loopRound(ctx, setup, failure, n)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, ErrUnexpected) || n == c.Rounds:
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

// loopRound runs the nth round, and checks what is stored in the end.
func (c Config) loopRound(ctx context.Context, setup *setup, failure Failure, n int) error {
	ctx, cancel := context.WithTimeout(ctx, roundTimeout)
	defer cancel()
	lock := fmt.Sprintf("demo/job-%d", n%jobs+1)
	r := newRound(setup, scenario{failure: failure, workers: workersOf(c.Program)}, "fenced", lock, "")
	r.A.Name, r.B.Name = fmt.Sprintf("worker-%d", n%jobs+1), fmt.Sprintf("worker-%d", (n+1)%jobs+1)
	value, err := r.runAndShow(ctx, fmt.Sprintf("Round %d: %s", n, lock), setup.fencedValue)
	if err == nil && value != r.B.value() {
		err = fmt.Errorf("%w: %q is stored in %s, where %s wrote last", ErrUnexpected, value, lock, r.B.Name)
	}
	return err
}
