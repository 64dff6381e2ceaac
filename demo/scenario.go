package demo

import (
	"context"
	"errors"
	"fmt"
)

// ErrUnexpected reports an outcome that must not be: the fence admitted the zombie, the unfenced variant kept the newer
// value, or a credential was wrongly accepted or refused.
var ErrUnexpected = errors.New("the demo did not end as it must")

// scenario is what differs from demo to demo.
type scenario struct {
	failure Failure
	// fenced and unfenced, if set, are the titles of the variants.
	fenced, unfenced string
	// workers is the command that runs a worker; nil: fencegate's own.
	workers []string
	// lock, if set, is the format of the names of locks. prepare, if set, is called before the first round.
	lock    string
	prepare func(ctx context.Context, setup *setup) (undo func(), err error)
}

// Failure is what goes wrong in a round. A method that a failure does not need is that of NoFailure.
type Failure interface {
	// Serve starts the servers that the gateway needs, and returns its flags.
	Serve(ctx context.Context, print func(Event)) (flags []string, err error)
	// Prepare is called before A asks for the lock.
	Prepare(ctx context.Context, r *Round) error
	// Strike is called when A has the lock, and works.
	Strike(ctx context.Context, r *Round) error
	// Taken is called when B has the lock, too.
	Taken(ctx context.Context, r *Round) error
	// Heal is called when B has written. After that, A writes.
	Heal(ctx context.Context, r *Round) error
	// Stop ends what was started.
	Stop()
}

// NoFailure is embedded by failures. Its methods do nothing.
type NoFailure struct{}

// Serve starts nothing.
func (NoFailure) Serve(context.Context, func(Event)) ([]string, error) { return nil, nil }

// Prepare does nothing.
func (NoFailure) Prepare(context.Context, *Round) error { return nil }

// Strike does nothing.
func (NoFailure) Strike(context.Context, *Round) error { return nil }

// Taken does nothing.
func (NoFailure) Taken(context.Context, *Round) error { return nil }

// Heal does nothing.
func (NoFailure) Heal(context.Context, *Round) error { return nil }

// Stop does nothing.
func (NoFailure) Stop() {}

// Run runs both variants and prints the result. The outcome is that of [Zombie.Run].
func (c Config) Run(ctx context.Context, failure Failure) error {
	return c.run(ctx, scenario{failure: failure})
}

// run runs both variants and prints the result. It returns nil only if the fenced variant kept the value of B and the
// unfenced one lost it, and ErrUnexpected otherwise. If ctx ends before, it returns the cause.
func (c Config) run(ctx context.Context, scenario scenario) (err error) {
	ctx, ended := endedWithReader(ctx, &c.Out, &err)
	defer ended()
	if len(c.Gateways) > 0 {
		return c.loop(ctx, scenario.failure)
	}
	ctx, cancel := context.WithTimeout(ctx, roundTimeout)
	defer cancel()
	setup := c.newSetup()
	defer setup.stop()
	defer scenario.failure.Stop()
	flags, err := scenario.failure.Serve(ctx, setup.print)
	if err != nil {
		return err
	}
	if err := setup.start(ctx, flags...); err != nil {
		return err
	}
	if scenario.prepare != nil {
		undo, err := scenario.prepare(ctx, setup)
		if err != nil {
			return err
		}
		defer undo()
	}
	return c.variants(ctx, setup, scenario.withDefaults(c))
}

func (s scenario) withDefaults(config Config) scenario {
	if s.fenced == "" {
		s.fenced = "With the fence: every write carries its token, and PostgreSQL checks it"
	}
	if s.unfenced == "" {
		s.unfenced = "Without the fence: the same lock and the same workers, the data in a plain table"
	}
	if s.lock == "" {
		s.lock = "job-%d" + config.Suffix
	}
	if s.workers == nil {
		s.workers = workersOf(config.Program)
	}
	return s
}

// workersOf is the command of fencegate that runs a worker.
func workersOf(program string) []string { return []string{program, "demo", "worker"} }

func (c Config) variants(ctx context.Context, setup *setup, scenario scenario) error {
	fenced := newRound(setup, scenario, "fenced", fmt.Sprintf(scenario.lock, 42), "")
	fencedValue, err := fenced.runAndShow(ctx, scenario.fenced, setup.fencedValue)
	if err != nil {
		return err
	}
	unfenced := newRound(setup, scenario, "unfenced", fmt.Sprintf(scenario.lock, 43), c.DatabaseURL)
	unfencedValue, err := unfenced.runAndShow(ctx, scenario.unfenced, setup.unfencedValue)
	if err != nil {
		return err
	}
	return conclude(setup.printer, fencedValue, unfencedValue)
}

// conclude prints the result.
func conclude(printer *printer, fenced, unfenced string) error {
	ofA, ofB := Worker{Name: "A"}.value(), Worker{Name: "B"}.value()
	ok := fenced == ofB && unfenced == ofA
	text := "Result: with the fence B's value was kept and the zombie's write rejected; without it the zombie destroyed " +
		"B's value."
	if !ok {
		text = fmt.Sprintf("Result: UNEXPECTED: with the fence %q is stored, without it %q.", fenced, unfenced)
	}
	printer.print(Event{Event: "result", Fenced: fenced, Unfenced: unfenced, OK: &ok, Text: text})
	if !ok {
		return ErrUnexpected
	}
	return nil
}
