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
	// Service, if set, names another lock service that grants the locks: "etcd". ServiceName describes it. Workers is
	// the command that runs a worker of it, and takes the flags of "demo worker".
	Service, ServiceName string
	Workers              []string
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
	roundTimeout = time.Minute
	// workOfA is time enough to freeze A before it writes, on a machine that is busy with other things. A is frozen for
	// longer than that.
	workOfA = demoTTL
	workOfB = 200 * time.Millisecond
)

// ErrUnexpected reports an outcome that must not be: the fence admitted the zombie, or the unfenced variant kept the
// newer value.
var ErrUnexpected = errors.New("the demo did not end as it must")

// Run runs both variants and prints the result. It returns nil only if the fenced variant kept the value of B and the
// unfenced one lost it, and ErrUnexpected otherwise. If ctx ends before, it returns the cause.
func (z Zombie) Run(ctx context.Context) (err error) {
	ctx, ended := endedWithReader(ctx, &err)
	defer ended()
	ctx, cancel := context.WithTimeout(ctx, roundTimeout)
	defer cancel()
	printer := newPrinter(z.Out, z.JSON)
	setup := z.newSetup(printer)
	defer setup.stop()
	if err := setup.start(ctx); err != nil {
		return err
	}
	lock, title := "job-%d"+z.Suffix, "With the fence: every write carries its token, and PostgreSQL checks it"
	if z.Service != "" {
		setup.print(Event{Event: "service", Text: "the lock service: " + z.ServiceName})
		prefix := "demo/" + z.Service + z.Suffix
		remove, err := setup.setExternal(ctx, prefix)
		if err != nil {
			return err
		}
		defer remove()
		lock = prefix + "/job-%d"
		title = fmt.Sprintf("With the fence: %s grants the lock, every write carries its number, and PostgreSQL checks it",
			z.Service)
	}

	fenced, err := z.variant(ctx, setup, "fenced", fmt.Sprintf(lock, 42), "", title, setup.fencedValue)
	if err != nil {
		return err
	}
	unfenced, err := z.variant(ctx, setup, "unfenced", fmt.Sprintf(lock, 43), z.DatabaseURL,
		"Without the fence: the same lock and the same workers, the data in a plain table", setup.unfencedValue)
	if err != nil {
		return err
	}
	return conclude(printer, fenced, unfenced)
}

func (z Zombie) newSetup(printer *printer) *setup {
	return &setup{
		printer: printer, program: z.Program, databaseURL: z.DatabaseURL, databaseName: z.DatabaseName,
		makeSQL: "create schema if not exists fencegate_demo; create table if not exists " + unfencedTable +
			" (resource text primary key, value text not null)",
		removeSQL: "drop schema if exists fencegate_demo cascade",
	}
}

// variant runs one round under a lock, and returns what is stored in the end.
func (z Zombie) variant(
	ctx context.Context, setup *setup, variant, lock, databaseURL, title string,
	stored func(ctx context.Context, resource string) (string, error),
) (string, error) {
	setup.print(Event{Event: "round", Variant: variant, Text: title})
	workers := z.Workers
	if workers == nil {
		workers = workersOf(z.Program)
	}
	if err := newRound(workers, variant, lock, databaseURL).run(ctx, setup); err != nil {
		return "", err
	}
	value, err := stored(ctx, lock)
	if err == nil {
		setup.print(Event{Event: "stored", Variant: variant, Value: value, Text: fmt.Sprintf("what is stored: %q", value)})
	}
	return value, err
}

// workersOf is the command of fencegate that runs a worker.
func workersOf(program string) []string { return []string{program, "demo", "worker"} }

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
