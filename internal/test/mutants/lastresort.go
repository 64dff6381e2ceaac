package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/fencegate/fencegate/internal/test/mutants/judge"
	"github.com/fencegate/fencegate/internal/test/testenv/postgres"
	"github.com/fencegate/fencegate/migrations"
)

const (
	lastAtOnce  = 4                // mutants, whose tests wait most of the time
	lastSeconds = 12               // of tests of a package judge a mutant
	lastKillers = 3                // tests of a package are tried before others
	lastBegin   = 20 * time.Second // a package's tests may take longer than without a mutant; none takes a quarter of it
	lastSkipped = "^(TestSlow_.*|TestMutants|TestMutations|TestEveryStep.*|TestCases|TestRule|TestScenarios|TestScripts|" +
		"Test.*Catch(es)?|TestFuzz.*)$"
)

// lastPackages are those whose tests judge what no case has noticed.
var lastPackages = []string{"store/postgres", "migrations", "store/waitqueue", "store/engine", "store/redislease",
	"store/cluster", "store/watch", "internal/checks", "gateway"}

// testPackage is a package whose tests judge.
type testPackage struct {
	name, binary string
	environment  []string // in which tests find a server
	sound        string   // a file with functions that are not broken
	tests        map[string]test

	sounds  sync.Map // tests that have passed without a mutant
	mu      sync.Mutex
	killers map[string][]string // tests by function: those that killed others of its mutants, the last one first
}

// test is one that passes without a mutant.
type test struct {
	Calls   []string
	Seconds float64
}

var (
	passed  = regexp.MustCompile(`(?m)^(?: {4})?--- PASS: (\w+)(?:/\S*)? \((.*)s\)`) // a test, or one in it
	failure = regexp.MustCompile(`(?m)^--- FAIL: (\w+)`)
	hanging = regexp.MustCompile(`running tests:\n\s+(\w+)`) // in what a process says whose time is over
)

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
	sound := filepath.Join(dir, "sound")
	if err := comment(sound); err != nil {
		return err
	}
	environment, stop, err := postgres.Serve(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = stop() }()
	var packages []*testPackage
	for _, name := range lastPackages {
		binary := filepath.Join(dir, strings.ReplaceAll(name, "/", "-")+".test")
		p := &testPackage{name: name, binary: binary, environment: environment, sound: sound, killers: map[string][]string{}}
		said, err := exec.CommandContext(ctx, "go", "test", "-c", "-trimpath", "-vet=off", "-o", binary, "./"+name).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w\n%s", err, said)
		}
		if err := p.measure(ctx); err != nil {
			return err
		}
		packages = append(packages, p)
	}
	fmt.Fprintf(os.Stderr, "whole tests judge %d mutants\n", len(places))
	places = slices.Clone(places)
	// By chance: if this is interrupted, those that were judged are a sample.
	rand.Shuffle(len(places), func(i, j int) { places[i], places[j] = places[j], places[i] }) //nolint:gosec // no secret
	for _, p := range places {
		p.left = true
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(lastAtOnce)
	for i, p := range places {
		group.Go(func() error {
			file := filepath.Join(dir, fmt.Sprint(i))
			if err := os.WriteFile(file, []byte(p.source), 0o600); err != nil {
				return err
			}
			for _, tests := range packages { // most are noticed as others of the function were
				tests.judge(ctx, p, file, tests.known(p))
			}
			for _, tests := range packages {
				tests.judge(ctx, p, file, tests.callers(p))
			}
			if ctx.Err() == nil {
				p.left = false
				fmt.Fprintln(os.Stderr, "killer:", p.verdict.Killer, p)
			}
			return ctx.Err()
		})
	}
	return group.Wait()
}

// comment writes a file with functions that are not broken, but have other comments.
func comment(file string) error {
	var commented strings.Builder
	for _, name := range migrations.Functions() {
		source, _ := migrations.GuardSource(name)
		commented.WriteString(strings.Replace(source, "as $$\n", "as $$\n-- \n", 1) + ";\n")
	}
	return os.WriteFile(file, []byte(commented.String()), 0o600)
}

// measure finds out which functions each test calls, and how long it takes, once for each binary. It leaves out tests
// that fail if functions have other comments.
func (p *testPackage) measure(ctx context.Context) error {
	binary, err := os.ReadFile(p.binary)
	if err != nil {
		return err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return err
	}
	known := filepath.Join(cache, "fencegate-mutants", fmt.Sprintf("%x.json", sha256.Sum256(binary)))
	if text, err := os.ReadFile(known); err == nil { //nolint:gosec // in the user's own cache
		return json.Unmarshal(text, &p.tests)
	}
	calls := p.binary + ".calls"
	if err := os.WriteFile(calls, nil, 0o600); err != nil {
		return err
	}
	said, _ := p.run(ctx, p.sound, "FENCEGATE_TEST_CALLS="+calls, "-test.v", "-test.skip="+lastSkipped, "-test.timeout=15m")
	text, err := os.ReadFile(calls)
	if err != nil {
		return err
	}
	p.tests = map[string]test{}
	for _, line := range passed.FindAllSubmatch(said, -1) {
		var seconds float64
		_, _ = fmt.Sscan(string(line[2]), &seconds)
		t := p.tests[string(line[1])]
		t.Seconds += seconds // those in it run beside each other, and count for it only if it has none
		p.tests[string(line[1])] = t
	}
	for decoder := json.NewDecoder(bytes.NewReader(text)); decoder.More(); {
		var c postgres.Calls
		if err := decoder.Decode(&c); err != nil {
			return err
		}
		if t, passed := p.tests[c.Test]; passed {
			t.Calls = slices.Compact(slices.Sorted(slices.Values(append(t.Calls, c.Functions...))))
			p.tests[c.Test] = t
		}
	}
	if len(p.tests) == 0 {
		return fmt.Errorf("no test of %s passes\n%s", p.name, said)
	}
	if text, err = json.Marshal(p.tests); err != nil {
		return err
	}
	//nolint:gosec // in the user's own cache
	return errors.Join(os.MkdirAll(filepath.Dir(known), 0o700), os.WriteFile(known, text, 0o600))
}

// known returns the tests that have noticed others of a mutant's function, the last one first.
func (p *testPackage) known(m *place) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.killers[m.function][:min(len(p.killers[m.function]), lastKillers)])
}

// callers returns tests that call a mutant's function, but for those that are known: those that call few others, for half of
// the time, and the shortest of those that call many, such as random calls.
func (p *testPackage) callers(m *place) (tests []string) {
	callers, known, most := judge.Callers(m.function), p.known(m), 0
	for name, t := range p.tests {
		if !slices.Contains(known, name) && slices.ContainsFunc(t.Calls, func(f string) bool { return slices.Contains(callers, f) }) {
			tests = append(tests, name)
			most = max(most, len(t.Calls))
		}
	}
	slices.SortFunc(tests, func(a, b string) int {
		return cmp.Or(cmp.Compare(len(p.tests[a].Calls), len(p.tests[b].Calls)), cmp.Compare(a, b))
	})
	few := p.within(lastSeconds/2, tests)
	broad := slices.DeleteFunc(tests, func(name string) bool {
		return slices.Contains(few, name) || len(p.tests[name].Calls) < most*2/3
	})
	slices.SortFunc(broad, func(a, b string) int { return cmp.Compare(p.tests[a].Seconds, p.tests[b].Seconds) })
	return append(few, p.within(lastSeconds/2, broad)...)
}

// within returns the first tests that take so many seconds, one at least.
func (p *testPackage) within(seconds float64, tests []string) []string {
	for i, name := range tests {
		if seconds -= p.tests[name].Seconds; seconds < 0 && i > 0 {
			return slices.Clone(tests[:i])
		}
	}
	return slices.Clone(tests)
}

// judge runs tests on a mutant.
func (p *testPackage) judge(ctx context.Context, m *place, file string, names []string) {
	m.verdict.Cases += len(names)
	for len(names) > 0 && m.survives() && ctx.Err() == nil {
		killer, said := p.fails(ctx, file, names...)
		if killer == "" {
			break
		}
		// Another test, chance, or a busy machine may have failed it: alone, it must fail again, and pass without the mutant.
		if again, _ := p.fails(ctx, file, killer); again != "" && p.passes(ctx, killer) && ctx.Err() == nil {
			p.killed(m, killer, said)
		}
		names = slices.DeleteFunc(slices.Clone(names), func(name string) bool { return name == killer })
	}
}

// passes is whether a test passes without a mutant, or did so when it failed with another one.
func (p *testPackage) passes(ctx context.Context, name string) bool {
	if _, known := p.sounds.Load(name); known {
		return true
	}
	failed, _ := p.fails(ctx, p.sound, name)
	if failed == "" {
		p.sounds.Store(name, true)
	}
	return failed == ""
}

// fails runs tests, and returns one that fails, or does not end.
func (p *testPackage) fails(ctx context.Context, file string, names ...string) (killer string, said []byte) {
	patience, longest := lastBegin, names[0]
	for _, name := range names {
		patience += time.Duration(p.tests[name].Seconds * float64(time.Second))
		if p.tests[name].Seconds > p.tests[longest].Seconds {
			longest = name
		}
	}
	run := "-test.run=^(" + strings.Join(names, "|") + ")$"
	said, err := p.run(ctx, file, "", run, "-test.failfast", "-test.timeout="+patience.String())
	if err == nil {
		return "", nil
	}
	if failed := failure.FindSubmatch(said); failed != nil {
		return string(failed[1]), said
	}
	for _, left := range hanging.FindAllSubmatch(said, 1) {
		return string(left[1]), said
	}
	return longest, said
}

func (p *testPackage) killed(m *place, by string, said []byte) {
	m.verdict.Killer, m.verdict.Failure = by, string(said)
	p.mu.Lock()
	defer p.mu.Unlock()
	others := slices.DeleteFunc(p.killers[m.function], func(name string) bool { return name == by })
	p.killers[m.function] = slices.Insert(others, 0, by)
}

// run runs tests with functions that a file breaks.
func (p *testPackage) run(ctx context.Context, file, variable string, args ...string) ([]byte, error) {
	run := exec.CommandContext(ctx, p.binary, args...)
	run.Dir = p.name
	run.Env = slices.Concat(os.Environ(), p.environment, []string{"FENCEGATE_TEST_BREAK=" + file})
	if variable != "" {
		run.Env = append(run.Env, variable)
	}
	run.WaitDelay = time.Second
	return run.CombinedOutput()
}
