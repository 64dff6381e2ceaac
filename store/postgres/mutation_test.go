package postgres_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencegate/fencegate/migrations"
)

// mutation is a function of the schema, broken on purpose, and the cases that must notice.
type mutation struct {
	name     string
	function string // guard/<function>.sql
	edit     edit
	fails    []string // cases that pass on the function as it is, and each of which must fail on the broken one
}

// edit returns the broken source, or an error where there is nothing left to break.
type edit func(source string) (string, error)

// TestEveryStepIsTested breaks the functions, one place at a time, and checks that the cases fail. A step of the rule
// that could be removed without a failing test would be a step that nobody keeps.
func TestEveryStepIsTested(t *testing.T) {
	t.Parallel()
	cases := map[string]storeCase{}
	for _, c := range allCases() {
		if _, twice := cases[c.name]; twice {
			t.Fatalf("two cases are called %q", c.name)
		}
		cases[c.name] = c
	}
	// Few databases for many mutations: to make one costs as much as several cases.
	beds := make(chan *testbed, 4)
	for range cap(beds) {
		beds <- newTestbed(t)
	}
	for _, m := range slices.Concat(stepMutations, ruleMutations, fastPathMutations, chainMutations, changeMutations,
		leaseMutations, scopeMutations, sessionMutations, holdMutations, togetherMutations, oneMutations, passMutations) {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			b := <-beds
			defer func() { beds <- b }()
			b.forget(t)
			m.apply(t, b)
			// It is broken in one place: a holder can still write by one of the sources.
			if err := cases["step 1: a token"].check(ctx, b); err != nil && cases["transaction: all is applied"].check(ctx,
				b) != nil {
				t.Fatalf("the function is broken altogether: %v", err)
			}
			for _, name := range m.fails {
				c, ok := cases[name]
				if !ok {
					t.Fatalf("there is no case %q", name)
				}
				if err := c.check(ctx, b); err == nil {
					t.Errorf("the case %q did not notice", name)
				}
			}
			b.forget(t)
			m.undo(t, b)
			for _, name := range m.fails {
				if err := cases[name].check(ctx, b); err != nil {
					t.Errorf("the case %q fails on the function as it is: %v", name, err)
				}
			}
		})
	}
}

func allCases() []storeCase {
	cases := slices.Clone(waitingCases)
	for _, c := range ruleCases() {
		cases = append(cases, c.by(bySet), c.alone().by(byOne))
	}
	for _, group := range caseGroups() {
		cases = append(cases, group...)
	}
	return cases
}

func (m mutation) apply(t *testing.T, b *testbed) {
	t.Helper()
	source, ok := migrations.GuardSource(m.function)
	if !ok {
		t.Fatalf("there is no guard/%s.sql", m.function)
	}
	broken, err := m.edit(source)
	if err != nil {
		t.Fatalf("guard/%s.sql: %v", m.function, err)
	}
	b.Exec(t, broken)
	if slices.Contains([]string{"admit", "lock_write_tokens", "apply_operations", "write_ruled"}, m.function) {
		b.Exec(t, theLongWay(t))
	}
	if slices.Contains(append([]string{"try_gate", "try_gates", "plain_locks"}, batchedFunctions...), m.function) {
		return
	}
	for _, batched := range batchedFunctions {
		b.Exec(t, decidingNothing(t, batched))
	}
}

// batchedFunctions decide about leases that concern nobody else. What they do not decide, the others do, one by one.
var batchedFunctions = []string{"acquire_leases", "acquire_one", "release_leases", "release_one", "renew_leases"}

// decidingNothing is one of batchedFunctions that leaves all to the others.
func decidingNothing(t *testing.T, batched string) string {
	t.Helper()
	source, _ := migrations.GuardSource(batched)
	nothing, err := replacing("\nbegin\n", "\nbegin\n    return;\n")(source)
	if err != nil {
		t.Fatalf("guard/%s.sql: %v", batched, err)
	}
	return nothing
}

// undo restores what apply broke.
func (m mutation) undo(t *testing.T, b *testbed) {
	t.Helper()
	for _, function := range append([]string{m.function, "write"}, batchedFunctions...) {
		source, _ := migrations.GuardSource(function)
		b.Exec(t, source)
	}
}

// theLongWay is fence.write without the fast path, on which most writes never come to what is broken.
func theLongWay(t *testing.T) string {
	t.Helper()
	source, _ := migrations.GuardSource("write")
	long, err := both(
		replacing("v_plain := p_wait_ms", "v_plain := false and p_wait_ms"),
		both(replacing("if p_wait_ms is distinct from 0 then", "if false then"),
			replacing("if cardinality(p_resources) >= 2 * p_turn_ends[1]", "if false")),
	)(source)
	if err != nil {
		t.Fatal(err)
	}
	return long
}

// replacing replaces the one place where a text occurs.
func replacing(old, replacement string) edit {
	return func(source string) (string, error) {
		if count := strings.Count(source, old); count != 1 {
			return "", fmt.Errorf("%q is there %d times, want once", old, count)
		}
		return strings.Replace(source, old, replacement, 1), nil
	}
}

func removing(old string) edit { return replacing(old, "") }

// both makes two edits.
func both(one, two edit) edit {
	return func(source string) (string, error) {
		source, err := one(source)
		if err != nil {
			return "", err
		}
		return two(source)
	}
}

// withoutStep takes a branch of a step of the rule out: the lines from "when" to the "then" that is marked with the
// step.
func withoutStep(step, branch int) edit {
	return func(source string) (string, error) {
		lines := strings.Split(source, "\n")
		mark, seen := fmt.Sprintf("-- step %d", step), 0
		for end, line := range lines {
			if !strings.HasSuffix(line, mark) {
				continue
			}
			if seen++; seen < branch {
				continue
			}
			begin := end
			for indent(lines[begin]) >= indent(line) {
				begin--
			}
			if !strings.HasPrefix(strings.TrimSpace(lines[begin]), "when ") {
				return "", fmt.Errorf("the branch of step %d begins with %q", step, lines[begin])
			}
			return strings.Join(slices.Delete(lines, begin, end+1), "\n"), nil
		}
		return "", fmt.Errorf("step %d has %d branches, want %d", step, seen, branch)
	}
}

func indent(line string) int { return len(line) - len(strings.TrimLeft(line, " ")) }

// TestEveryStepIsMarked checks that each branch that is marked as a step has a mutation.
func TestEveryStepIsMarked(t *testing.T) {
	t.Parallel()
	marks := 0
	for _, function := range []string{"rule", "admit", "apply_operations"} {
		source, _ := migrations.GuardSource(function)
		marks += strings.Count(source, "-- step ")
	}
	if marks != len(stepMutations) {
		t.Errorf("the functions have %d branches that are marked as steps, the mutations are %d", marks, len(stepMutations))
	}
}
