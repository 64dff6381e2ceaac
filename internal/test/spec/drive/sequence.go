// Package drive holds tests' drivers of the specification: what they send is drawn by a spec.Generator, and every answer
// is compared with that of spec.State.Step.
package drive

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
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
				t.Fatalf("%v\nthe script:\n%s", err, strings.Join(r.script, "\n"))
			}
		}
		for _, op := range r.begin() {
			do(op)
		}
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
	choices := random{rand.New(rand.NewPCG(seed, 0))} //nolint:gosec // it chooses what a test does
	for runs := 1; ctx.Err() == nil; runs++ {
		r := newSequence(target, generator, fmt.Sprintf("search-%d-%d", seed, runs))
		steps := len(r.begin())
		for at := 0; at < 60+steps && ctx.Err() == nil; at++ {
			var op spec.Op
			switch {
			case at < steps:
				op = r.begin()[at]
			default:
				op = r.generator.Next(r.state, choices)
			}
			if err := r.do(ctx, op); err != nil && ctx.Err() == nil {
				return fmt.Errorf("%w\nthe script:\n%s", err, strings.Join(r.script, "\n"))
			}
		}
		if err := target.Forget(context.WithoutCancel(ctx)); err != nil {
			return err
		}
	}
	return nil
}

type random struct{ *rand.Rand }

func (r random) Below(n int) int { return r.IntN(n) }

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

// begin are the operations that a run begins with: otherwise little happens on a name for long.
func (r *sequence) begin() []spec.Op {
	begin := make([]spec.Op, len(r.generator.Names))
	for i, name := range r.generator.Names {
		begin[i] = spec.Op{Kind: spec.Acquire, Name: name, Owner: "A", TTL: r.generator.TTL}
	}
	return begin
}

// do performs an operation, and returns an error if the answer is not the contract's.
func (r *sequence) do(ctx context.Context, op spec.Op) error {
	text := r.state.Text(op)
	r.script = append(r.script, text)
	got, chosen, err := r.target.Perform(ctx, r.state, op)
	if err != nil {
		return fmt.Errorf("%s: %w", text, err)
	}
	next, want := r.state.Step(op, chosen)
	r.counts[strings.TrimSpace(got.Code+" "+got.Reason)]++
	if !got.Same(want) {
		return fmt.Errorf("%s\nreturned %s\nwant     %s\nin %s", op, got, want, r.state.Summary())
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
