package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/fencegate/fencegate/internal/test/mutants/judge"
	"github.com/fencegate/fencegate/internal/test/testenv/postgres"
	"github.com/fencegate/fencegate/migrations"
)

const (
	lastTests   = 10 // of a package that judge a mutant: those that call it and few others
	lastAtOnce  = 3  // mutants, whose tests wait most of the time
	lastSkipped = "^(TestSlow_.*|TestMutants|TestMutations|TestEveryStep.*|TestCases|TestRule|TestFuzz.*)$"
)

// testPackage is a package whose tests judge what no case has noticed.
type testPackage struct {
	name, binary string
	calls        map[string][]string // functions by test, of those that pass
}

var failure = regexp.MustCompile(`(?m)^--- FAIL: (\w+)`)

// judgeByTests has whole tests judge mutants.
func judgeByTests(ctx context.Context, places []*place) error {
	if len(places) == 0 {
		return nil
	}
	dir, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	var packages []*testPackage
	for _, name := range []string{"store/postgres", "migrations", "gateway"} {
		p := &testPackage{name: name, binary: filepath.Join(dir, strings.ReplaceAll(name, "/", "-")+".test")}
		said, err := exec.CommandContext(ctx, "go", "test", "-c", "-trimpath", "-vet=off", "-o", p.binary, "./"+name).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w\n%s", err, said)
		}
		if err := p.measure(ctx, dir); err != nil {
			return err
		}
		packages = append(packages, p)
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(lastAtOnce)
	for i, p := range places {
		group.Go(func() error {
			file := filepath.Join(dir, fmt.Sprint(i))
			if err := os.WriteFile(file, []byte(p.source), 0o600); err != nil {
				return err
			}
			for _, tests := range packages {
				if p.survives() {
					tests.judge(ctx, p, file)
				}
			}
			return ctx.Err()
		})
	}
	return group.Wait()
}

// measure finds out which functions each test calls. It leaves out tests that fail if functions have other comments.
func (p *testPackage) measure(ctx context.Context, dir string) error {
	var commented strings.Builder
	for _, name := range migrations.Functions() {
		source, _ := migrations.GuardSource(name)
		commented.WriteString(strings.Replace(source, "as $$\n", "as $$\n-- \n", 1) + ";\n")
	}
	file, calls := filepath.Join(dir, "commented"), filepath.Join(dir, "calls")
	if err := errors.Join(os.WriteFile(file, []byte(commented.String()), 0o600), os.WriteFile(calls, nil, 0o600)); err != nil {
		return err
	}
	said, _ := p.run(ctx, file, "FENCEGATE_TEST_CALLS="+calls, "-test.skip="+lastSkipped, "-test.timeout=15m")
	text, err := os.ReadFile(calls)
	if err != nil {
		return err
	}
	p.calls = map[string][]string{}
	for decoder := json.NewDecoder(bytes.NewReader(text)); decoder.More(); {
		var c postgres.Calls
		if err := decoder.Decode(&c); err != nil {
			return err
		}
		p.calls[c.Test] = append(p.calls[c.Test], c.Functions...)
	}
	for test := range p.calls {
		slices.Sort(p.calls[test])
		p.calls[test] = slices.Compact(p.calls[test])
	}
	for _, failed := range failure.FindAllSubmatch(said, -1) {
		delete(p.calls, string(failed[1]))
	}
	if len(p.calls) == 0 {
		return fmt.Errorf("no test of %s calls a function\n%s", p.name, said)
	}
	return nil
}

// judge runs the tests on a mutant.
func (p *testPackage) judge(ctx context.Context, m *place, file string) {
	var tests []string
	callers := judge.Callers(m.function)
	for test, calls := range p.calls {
		if slices.ContainsFunc(calls, func(f string) bool { return slices.Contains(callers, f) }) {
			tests = append(tests, test)
		}
	}
	slices.SortFunc(tests, func(a, b string) int {
		return cmp.Or(cmp.Compare(len(p.calls[a]), len(p.calls[b])), cmp.Compare(a, b))
	})
	tests = tests[:min(len(tests), lastTests)]
	if len(tests) == 0 {
		return
	}
	m.verdict.Cases += len(tests)
	said, err := p.run(ctx, file, "", "-test.run=^("+strings.Join(tests, "|")+")$", "-test.failfast", "-test.timeout=3m")
	if err != nil && ctx.Err() == nil {
		m.verdict.Killer = "a test of " + p.name + " that does not end"
		if failed := failure.FindSubmatch(said); failed != nil {
			m.verdict.Killer = string(failed[1])
		}
		m.verdict.Failure = string(said)
	}
}

// run runs tests with functions that a file breaks.
func (p *testPackage) run(ctx context.Context, file, variable string, args ...string) ([]byte, error) {
	run := exec.CommandContext(ctx, p.binary, args...)
	run.Dir = p.name
	run.Env = append(os.Environ(), "FENCEGATE_TEST_BREAK="+file)
	if variable != "" {
		run.Env = append(run.Env, variable)
	}
	return run.CombinedOutput()
}
