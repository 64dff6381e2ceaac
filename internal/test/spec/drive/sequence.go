// Package drive holds tests' drivers of the specification: what they send is drawn by a spec.Generator, and every answer
// is compared with that of spec.State.Step.
package drive

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/fencegate/fencegate/internal/test/spec"
	"github.com/fencegate/fencegate/store"
)

var scriptFile = flag.String("spec.script", "", "a file with operations, to be run in place of random ones")

// Target performs operations that come one after the other.
type Target interface {
	// Perform performs an operation. The state is the one before it.
	Perform(ctx context.Context, before spec.State, op spec.Op) (spec.Answer, spec.Choice, error)
	// Forget undoes what outlives a run, such as policies.
	Forget(ctx context.Context) error
}

// Settler is a target in which more happens after an operation, by itself.
type Settler interface {
	// Settle returns, once all has happened that follows from a state, the state after it; or what is not as it should be.
	Settle(ctx context.Context, after spec.State, op spec.Op) (spec.State, error)
}

// Holder is a target that is told of operations that are sent together.
type Holder interface {
	// Hold is called before so many of them, and answered after each.
	Hold(calls int) (answered func())
}

// Sequences performs random sequences of operations, one after the other, and stops at the first answer that is not the
// contract's. It prints the shortest sequence that it finds, as a script for the flag -spec.script. It returns how often
// there was each code of an answer.
func Sequences(t *testing.T, target Target, generator spec.Generator) map[string]int {
	t.Helper()
	counts := map[string]int{}
	if *scriptFile != "" {
		text, err := os.ReadFile(*scriptFile)
		if err == nil {
			err = newSequence(target, generator, "").replay(t.Context(), string(text))
		}
		if err != nil {
			t.Fatal(err)
		}
		return counts
	}
	runs := 0
	rapid.Check(t, func(t *rapid.T) {
		runs++
		r := newSequence(target, generator, fmt.Sprint("run-", runs))
		defer func() {
			if err := target.Forget(t.Context()); err != nil {
				t.Error(err)
			}
		}()
		do := func(op spec.Op) {
			if err := r.do(t.Context(), op); err != nil {
				t.Fatal(err)
			}
		}
		r.begin(do)
		t.Repeat(map[string]func(*rapid.T){"step": func(t *rapid.T) { do(r.generator.Next(r.state, drawn{t})) }})
		for _, op := range r.state.Reads(r.generator.Names) {
			do(op)
		}
		for code, n := range r.counts {
			counts[code] += n
		}
	})
	codes := slices.Sorted(maps.Keys(counts))
	for i, code := range codes {
		codes[i] = fmt.Sprintf("%s %d", code, counts[code])
	}
	t.Logf("%d sequences; %s", runs, strings.Join(codes, ", "))
	return counts
}

// Search performs random sequences until ctx ends, and returns the first answer that is not the contract's.
func Search(ctx context.Context, target Target, generator spec.Generator, seed uint64) error {
	for runs := 1; ctx.Err() == nil; runs++ {
		err := Random(ctx, target, generator, fmt.Sprintf("search-%d-%d", seed, runs), seed<<32+uint64(runs), 60)
		if err != nil && ctx.Err() == nil {
			return err
		}
	}
	return nil
}

// Random performs one random sequence of so many operations, on names below a prefix. It returns an error for the first
// answer that is not the contract's.
func Random(
	ctx context.Context, target Target, generator spec.Generator, prefix string, seed uint64, steps int,
) (err error) {
	r := newSequence(target, generator, prefix)
	do := func(op spec.Op) {
		if err == nil {
			err = r.do(ctx, op)
		}
	}
	r.begin(do)
	random := spec.FromSeed(seed)
	for range steps {
		do(r.generator.Next(r.state, random))
	}
	for _, op := range r.state.Reads(r.generator.Names) {
		do(op)
	}
	return errors.Join(err, target.Forget(context.WithoutCancel(ctx)))
}

// drawn makes choices that rapid can make simpler.
type drawn struct{ *rapid.T }

func (d drawn) Below(n int) int { return rapid.IntRange(0, n-1).Draw(d.T, "") }

// sequence is one run.
type sequence struct {
	target    Target
	generator spec.Generator
	state     spec.State
	script    []string
	counts    map[string]int
}

// newSequence is a run on names below a prefix.
func newSequence(target Target, generator spec.Generator, prefix string) *sequence {
	r := &sequence{target: target, generator: generator, counts: map[string]int{}}
	r.generator.Names = nil
	for _, name := range generator.Names {
		r.generator.Names = append(r.generator.Names, store.Name(prefix)+"/"+name)
	}
	return r
}

// begin acquires all locks: otherwise little happens on a name for long.
func (r *sequence) begin(do func(spec.Op)) {
	for _, name := range r.generator.Names {
		do(spec.Op{Kind: spec.Acquire, Name: name, Owner: "A", TTL: r.generator.TTL})
	}
}

// do performs an operation, and returns an error if the answer is not the contract's.
func (r *sequence) do(ctx context.Context, op spec.Op) error {
	r.script = append(r.script, r.state.Text(op))
	if err := r.perform(ctx, op); err != nil {
		return fmt.Errorf("%s: %w\nin %s\nthe script:\n%s", op, err, r.state.Summary(), strings.Join(r.script, "\n"))
	}
	return nil
}

func (r *sequence) perform(ctx context.Context, op spec.Op) error {
	var err error
	if op.Kind == spec.Together {
		err = r.together(ctx, op.Parts)
	} else {
		var got spec.Answer
		var chosen spec.Choice
		if got, chosen, err = r.target.Perform(ctx, r.state, op); err == nil {
			err = r.step(op, got, chosen)
		}
	}
	if settler, ok := r.target.(Settler); ok && err == nil {
		granted := len(r.state.Leases())
		r.state, err = settler.Settle(ctx, r.state, op)
		r.counts["served"] += len(r.state.Leases()) - granted
	}
	return err
}

// together performs operations at the same time. They are of different locks, so each has the answer that it would have
// alone.
func (r *sequence) together(ctx context.Context, ops []spec.Op) error {
	answers, choices, failed := make([]spec.Answer, len(ops)), make([]spec.Choice, len(ops)), make([]error, len(ops))
	answered := func() {}
	if holder, ok := r.target.(Holder); ok {
		answered = holder.Hold(len(ops))
	}
	var performing sync.WaitGroup
	for i, op := range ops {
		performing.Go(func() {
			answers[i], choices[i], failed[i] = r.target.Perform(ctx, r.state, op)
			answered()
		})
	}
	performing.Wait()
	err := errors.Join(failed...)
	for i, op := range ops {
		if err == nil {
			err = r.step(op, answers[i], choices[i])
		}
	}
	return err
}

// step compares an answer with the contract's.
func (r *sequence) step(op spec.Op, got spec.Answer, chosen spec.Choice) error {
	next, want := r.state.Step(op, chosen)
	r.counts[strings.TrimSpace(got.Code+" "+got.Reason)]++
	if !got.Same(want) {
		return fmt.Errorf("%s\nreturned %s\nwant     %s", op, got, want)
	}
	r.state = next
	return nil
}

// replay runs a script.
func (r *sequence) replay(ctx context.Context, text string) error {
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "--") {
			continue
		}
		op, err := spec.ParseOp(line, r.state)
		if err != nil {
			return err
		}
		if err := r.do(ctx, op); err != nil {
			return err
		}
	}
	return r.target.Forget(ctx)
}
