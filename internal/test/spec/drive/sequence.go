// Package drive holds tests' drivers of the specification: what they send is drawn by a spec.Generator, and every answer
// is compared with that of spec.State.Step.
package drive

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"iter"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

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

// Search begins random sequences for a time, and returns the first answer that is not the contract's.
func Search(ctx context.Context, target Target, generator spec.Generator, seed uint64, length time.Duration) (err error) {
	end := time.Now().Add(length)
	for runs := 1; err == nil && time.Now().Before(end); runs++ {
		err = Random(ctx, target, generator, fmt.Sprintf("search-%d-%d", seed, runs), seed<<32+uint64(runs), 60)
	}
	return err
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
	r := &sequence{target: target, generator: generator, counts: map[string]int{},
		state: spec.State{Elsewhere: generator.Elsewhere}}
	r.generator.Names = nil
	for _, name := range generator.Names {
		r.generator.Names = append(r.generator.Names, store.Name(prefix)+"/"+name)
	}
	return r
}

// begin acquires all locks: otherwise little happens on a name for long.
func (r *sequence) begin(do func(spec.Op)) {
	principal := ""
	if len(r.generator.Principals) > 0 {
		principal = r.generator.Principals[0]
	}
	for _, name := range r.generator.Names {
		do(spec.Op{Kind: spec.Acquire, Name: name, Owner: "A", TTL: r.generator.TTL, Principal: principal})
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
	ops := []spec.Op{op}
	if op.Kind == spec.Together {
		ops = op.Parts
	}
	next, err := inSomeOrder(r.state, r.atOnce(ctx, ops))
	if err != nil {
		return err
	}
	r.state = next
	if settler, ok := r.target.(Settler); ok {
		granted := len(r.state.Leases())
		r.state, err = settler.Settle(ctx, r.state, op)
		r.counts["served"] += len(r.state.Leases()) - granted
	}
	return err
}

// atOnce performs operations at the same time.
func (r *sequence) atOnce(ctx context.Context, ops []spec.Op) []performed {
	calls := make([]performed, len(ops))
	answered := func() {}
	if holder, ok := r.target.(Holder); ok && len(ops) > 1 {
		answered = holder.Hold(len(ops))
	}
	var performing sync.WaitGroup
	for i, op := range ops {
		performing.Go(func() {
			got, chosen, err := r.target.Perform(ctx, r.state, op)
			calls[i] = performed{op, got, chosen, err}
			answered()
		})
	}
	performing.Wait()
	for _, one := range calls {
		r.counts[strings.TrimSpace(one.got.Code+" "+one.got.Reason)]++
	}
	// In Redis, an acquire holds the lock before PostgreSQL refuses it.
	isHeld := func(one performed) bool { return one.got.Code == spec.CodeHeld }
	if definite := slices.DeleteFunc(slices.Clone(calls), isHeld); r.state.Elsewhere && len(ops) > 1 && len(definite) > 0 {
		return definite
	}
	return calls
}

// performed is an operation with its answer.
type performed struct {
	op     spec.Op
	got    spec.Answer
	chosen spec.Choice
	err    error
}

// inSomeOrder is the state after calls that were made at once, in an order in which the contract has their answers.
func inSomeOrder(s spec.State, calls []performed) (spec.State, error) {
	var failed error
	for i, first := range calls {
		next, err := first.step(s)
		if err == nil && len(calls) > 1 {
			next, err = inSomeOrder(next, slices.Delete(slices.Clone(calls), i, i+1))
		}
		if err == nil {
			return next, nil
		}
		failed = cmp.Or(failed, err)
	}
	return s, failed
}

// step is the state after the operation, if its answer is the contract's.
func (r performed) step(s spec.State) (spec.State, error) {
	if r.err != nil {
		return s, fmt.Errorf("%s: %w", r.op, r.err)
	}
	next, want := s.Step(r.op, r.chosen)
	if !r.got.Same(want) {
		return s, fmt.Errorf("%s\nreturned %s\nwant     %s", r.op, r.got, want)
	}
	return next, nil
}

// Scenarios performs the scenarios of what every provider promises (spec.Scenarios), in which random operations rarely
// meet. Elsewhere is that of a spec.State. Operations whose text has one of the words without are left out: the target does
// not support them.
func Scenarios(t *testing.T, target Target, elsewhere bool, without ...string) {
	t.Helper()
	for title, scenario := range AllScenarios(without...) {
		t.Run(title, func(t *testing.T) {
			r := &sequence{target: target, counts: map[string]int{}, state: spec.State{Elsewhere: elsewhere}}
			err := r.replay(t.Context(), scenario)
			if elsewhere && errors.Is(err, spec.ErrNoLease) { // of a kind that is not kept there
				err = target.Forget(t.Context())
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	if t.Failed() {
		t.FailNow()
	}
}

// AllScenarios are the titles and the operations of the scenarios.
func AllScenarios(without ...string) iter.Seq2[string, string] {
	repeated := regexp.MustCompile(`\{(.+?)\*(\d+)\}`)
	text := repeated.ReplaceAllStringFunc(spec.Scenarios, func(text string) string {
		found := repeated.FindStringSubmatch(text)
		count, _ := strconv.Atoi(found[2])
		return strings.Repeat(found[1], count)
	})
	return func(yield func(title, scenario string) bool) {
		for scenario := range strings.SplitSeq(text, "\n\n") {
			title, _, _ := strings.Cut(scenario, "\n")
			var supported strings.Builder
			for line := range strings.Lines(scenario) {
				if !slices.ContainsFunc(without, func(word string) bool { return strings.Contains(line, word) }) {
					supported.WriteString(line)
				}
			}
			if !yield(strings.TrimPrefix(title, "-- "), supported.String()) {
				return
			}
		}
	}
}

// Replay performs a scenario, and returns an error for the first answer that is not the contract's.
func Replay(ctx context.Context, target Target, scenario string) error {
	return (&sequence{target: target, counts: map[string]int{}}).replay(ctx, scenario)
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
