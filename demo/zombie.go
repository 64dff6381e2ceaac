//go:build unix

package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

// Zombie is the story of the worker that wakes after its lease has expired.
type Zombie struct {
	// Program is the fencegate binary; it runs the gateway ("serve") and the workers ("demo worker").
	Program string
	// DatabaseURL is where the stage is set.
	DatabaseURL string
	// DatabaseName tells the audience what it is.
	DatabaseName string
	// Run is put behind the names of locks, to set this run apart from others in the same database.
	Run string
	// JSON tells events as JSON, one a line.
	JSON bool
	// Out is where the story is told.
	Out io.Writer
}

const (
	demoTTL      = 2 * time.Second
	roundTimeout = 25 * time.Second
	// workOfA is time enough to freeze A before it writes, on a machine that is busy with other things.
	workOfA = time.Second
	workOfB = 200 * time.Millisecond
)

// ErrUnexpected says that the story did not go as it must: the fence let the zombie in, or the twin kept what it should have lost.
var ErrUnexpected = errors.New("the story ended otherwise than it must")

// Tell tells the story and its unfenced twin, and one line of result. It returns nil only if the fenced run kept B's value and the unfenced one
// lost it; ErrUnexpected if not.
func (z Zombie) Tell(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, roundTimeout)
	defer cancel()
	narrator := newNarrator(z.Out, z.JSON)
	stage, err := z.setStage(ctx, narrator)
	if err != nil {
		return err
	}
	defer stage.strike()

	fenced, err := z.fenced(ctx, stage)
	if err != nil {
		return err
	}
	unfenced, err := z.unfenced(ctx, stage)
	if err != nil {
		return err
	}
	return conclude(narrator, fenced, unfenced)
}

func (z Zombie) fenced(ctx context.Context, stage *stage) (string, error) {
	stage.tell(Event{Event: "round", Variant: "fenced", Text: "With the fence: every write carries its token, and PostgreSQL checks it"})
	if err := playing(z.Program, "fenced", z.lock("job-42"), "").act(ctx, stage); err != nil {
		return "", err
	}
	value, err := stage.fencedValue(ctx, z.lock("job-42"))
	if err == nil {
		stage.tell(Event{Event: "stored", Variant: "fenced", Value: value, Text: fmt.Sprintf("what is stored: %q", value)})
	}
	return value, err
}

func (z Zombie) unfenced(ctx context.Context, stage *stage) (string, error) {
	stage.tell(Event{Event: "round", Variant: "unfenced", Text: "Without the fence: the same lock and the same workers, the data in a plain table"})
	if err := playing(z.Program, "unfenced", z.lock("job-43"), z.DatabaseURL).act(ctx, stage); err != nil {
		return "", err
	}
	value, err := stage.unfencedValue(ctx, z.lock("job-43"))
	if err == nil {
		stage.tell(Event{Event: "stored", Variant: "unfenced", Value: value, Text: fmt.Sprintf("what is stored: %q", value)})
	}
	return value, err
}

func (z Zombie) lock(name string) string { return name + z.Run }

// conclude tells the result.
func conclude(narrator *narrator, fenced, unfenced string) error {
	ofA, ofB := Worker{Name: "A"}.value(), Worker{Name: "B"}.value()
	ok := fenced == ofB && unfenced == ofA
	text := "Result: with the fence B's value was kept and the zombie's write rejected; without it the zombie destroyed B's value."
	if !ok {
		text = fmt.Sprintf("Result: UNEXPECTED: with the fence %q is stored, without it %q.", fenced, unfenced)
	}
	narrator.tell(Event{Event: "result", Fenced: fenced, Unfenced: unfenced, OK: &ok, Text: text})
	if !ok {
		return ErrUnexpected
	}
	return nil
}
