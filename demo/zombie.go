//go:build unix

package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

// Zombie shows a worker that wakes after its lease has expired, and writes.
type Zombie struct {
	// Program is the fencegate binary; it runs the gateway ("serve") and the workers ("demo worker").
	Program string
	// DatabaseURL is the PostgreSQL that the gateway and the plain table use.
	DatabaseURL string
	// DatabaseName describes it.
	DatabaseName string
	// Suffix ends the names of locks. It keeps apart several runs on one database.
	Suffix string
	// JSON prints events as JSON, one a line.
	JSON bool
	// Out is where events are printed.
	Out io.Writer
}

const (
	demoTTL      = 2 * time.Second
	roundTimeout = 25 * time.Second
	// workOfA is time enough to freeze A before it writes, on a machine that is busy with other things.
	workOfA = time.Second
	workOfB = 200 * time.Millisecond
)

// ErrUnexpected reports an outcome that must not be: the fence admitted the zombie, or the unfenced variant kept the
// newer value.
var ErrUnexpected = errors.New("the demo did not end as it must")

// Run runs both variants and prints the result. It returns nil only if the fenced variant kept the value of B and the
// unfenced one lost it, and ErrUnexpected otherwise.
func (z Zombie) Run(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, roundTimeout)
	defer cancel()
	printer := newPrinter(z.Out, z.JSON)
	setup, err := z.start(ctx, printer)
	if err != nil {
		return err
	}
	defer setup.stop()

	fenced, err := z.fenced(ctx, setup)
	if err != nil {
		return err
	}
	unfenced, err := z.unfenced(ctx, setup)
	if err != nil {
		return err
	}
	return conclude(printer, fenced, unfenced)
}

func (z Zombie) fenced(ctx context.Context, setup *setup) (string, error) {
	setup.print(Event{Event: "round", Variant: "fenced", Text: "With the fence: every write carries its token, and PostgreSQL checks it"})
	if err := newRound(z.Program, "fenced", z.lock("job-42"), "").run(ctx, setup); err != nil {
		return "", err
	}
	value, err := setup.fencedValue(ctx, z.lock("job-42"))
	if err == nil {
		setup.print(Event{Event: "stored", Variant: "fenced", Value: value, Text: fmt.Sprintf("what is stored: %q", value)})
	}
	return value, err
}

func (z Zombie) unfenced(ctx context.Context, setup *setup) (string, error) {
	setup.print(Event{Event: "round", Variant: "unfenced", Text: "Without the fence: the same lock and the same workers, the data in a plain table"})
	if err := newRound(z.Program, "unfenced", z.lock("job-43"), z.DatabaseURL).run(ctx, setup); err != nil {
		return "", err
	}
	value, err := setup.unfencedValue(ctx, z.lock("job-43"))
	if err == nil {
		setup.print(Event{Event: "stored", Variant: "unfenced", Value: value, Text: fmt.Sprintf("what is stored: %q", value)})
	}
	return value, err
}

func (z Zombie) lock(name string) string { return name + z.Suffix }

// conclude prints the result.
func conclude(printer *printer, fenced, unfenced string) error {
	ofA, ofB := Worker{Name: "A"}.value(), Worker{Name: "B"}.value()
	ok := fenced == ofB && unfenced == ofA
	text := "Result: with the fence B's value was kept and the zombie's write rejected; without it the zombie destroyed B's value."
	if !ok {
		text = fmt.Sprintf("Result: UNEXPECTED: with the fence %q is stored, without it %q.", fenced, unfenced)
	}
	printer.print(Event{Event: "result", Fenced: fenced, Unfenced: unfenced, OK: &ok, Text: text})
	if !ok {
		return ErrUnexpected
	}
	return nil
}
