// Command mutants breaks the product by rule, one place at a time, and counts what the tests notice.
//
// It breaks the SQL functions of migrations/guard (see mutants), and lets the cases of store/postgres and the scripts of
// migrations judge them. Run it in the root of the module, as `make mutants` does.
package main

import (
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/fencegate/fencegate/internal/test/mutants/judge"
	"github.com/fencegate/fencegate/migrations"
)

func main() {
	var c command
	flag.StringVar(&c.only, "only", "", "break this directory or file of migrations/guard, or this function, alone; separate several by commas")
	flag.IntVar(&c.sample, "sample", 0, "break `n` places alone, drawn by the seed")
	flag.Uint64Var(&c.seed, "seed", 0, "of the sample")
	flag.StringVar(&c.again, "again", "", "break alone what survives in this earlier report, a `file`")
	flag.StringVar(&c.report, "report", "mutants.txt", "write the report to this `file`")
	golang := flag.Bool("go", false, "break packages in Go, see goPackages")
	fast := flag.Bool("fast", false, "let cases and scripts judge alone, and no whole tests")
	by := flag.String("by", strings.Join(judges, ","), "the `packages` whose cases judge, separated by commas")
	whole := flag.Bool("whole", false, "let whole tests judge alone")
	byHand := flag.Bool("by-hand", false, "show which of the mutants that tests make by hand the rules make, too")
	list := flag.Bool("list", false, "show what would be broken, and run nothing")
	flag.Parse()
	find, judge := all, func(ctx context.Context, places []*place) error {
		if *whole {
			return judgeByTests(ctx, survivors(places))
		}
		return judgeSQL(ctx, places, strings.Split(*by, ","), *fast)
	}
	if *golang {
		find, judge = allGo, judgeGo
	}
	mutants, err := c.choose(find())
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	if *list {
		for _, m := range mutants {
			fmt.Println(m)
		}
		return
	}
	if *byHand {
		err = compareByHand(ctx, mutants)
	} else {
		err = judge(ctx, mutants)
		err = errors.Join(err, c.write(mutants)) // also what was known before a failure or an interrupt
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

type command struct {
	only   string
	again  string
	sample int
	seed   uint64
	report string
}

// place is a mutant with its place and its verdict.
type place struct {
	mutant
	directory, file string
	line            int
	equivalent      string // why the product works as well with it; "" if it does not. Then it is not judged
	verdict         judge.Verdict
	left            bool // not judged to the end, since that was interrupted
}

func (p *place) String() string {
	return fmt.Sprintf("%s:%d: %s | %s", p.file, p.line, p.function, p.change)
}

func (p *place) id() string { return p.function + " | " + p.change }

func (p *place) survives() bool {
	return p.verdict.Killer == "" && p.verdict.Refused == "" && p.equivalent == ""
}

// equivalents has the mutants with which the product works as well: function | change | reason, one a line.
//
//go:embed equivalent.txt
var equivalents string

// reasons returns why mutants are equivalent, by their names.
func reasons() map[string]string {
	found := map[string]string{}
	for line := range strings.Lines(equivalents) {
		parts := strings.Split(strings.TrimSpace(line), " | ")
		if len(parts) > 2 && !strings.HasPrefix(line, "#") {
			last := len(parts) - 1
			found[strings.Join(parts[:last], " | ")] = parts[last]
		}
	}
	return found
}

var definition = regexp.MustCompile(`(?m)^create or replace (?:function|view) fence\.(\w+)`)

// all returns every mutant of the functions.
func all() (places []*place) {
	equivalent := reasons()
	files, _ := filepath.Glob("migrations/guard/*/*.sql")
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			panic(err)
		}
		for _, name := range definition.FindAllSubmatch(text, -1) {
			function := string(name[1])
			source, _ := migrations.GuardSource(function)
			begin := bytes.Index(text, []byte(source))
			for _, m := range mutants(function, source) {
				p := &place{mutant: m, directory: filepath.Base(filepath.Dir(file)), file: file,
					line: 1 + bytes.Count(text[:begin+m.start], []byte("\n"))}
				p.equivalent = equivalent[p.id()]
				places = append(places, p)
			}
		}
	}
	return places
}

// choose returns those that the flags name.
func (c *command) choose(places []*place) ([]*place, error) {
	if c.only != "" {
		only := strings.Split(c.only, ",")
		places = slices.DeleteFunc(places, func(p *place) bool {
			return !slices.ContainsFunc([]string{p.directory, filepath.Base(p.file), p.function}, func(name string) bool {
				return slices.Contains(only, name)
			})
		})
	}
	if c.again != "" {
		report, err := os.ReadFile(c.again)
		if err != nil {
			return nil, err
		}
		places = slices.DeleteFunc(places, func(p *place) bool {
			return !bytes.Contains(report, []byte(": "+p.id()+" ("))
		})
	}
	random := rand.New(rand.NewPCG(c.seed, 0)) //nolint:gosec // a sample is no secret
	if c.sample > 0 && c.sample < len(places) {
		random.Shuffle(len(places), func(i, j int) { places[i], places[j] = places[j], places[i] })
		places = places[:c.sample]
	}
	return places, nil
}

// judges are the packages whose cases judge.
var judges = []string{"./store/postgres", "./store/waitqueue", "./migrations"}

// judgeSQL has the mutants judged by the cases of packages, each of which judges the survivors of those before. Unless it
// must be fast, whole tests judge at last.
func judgeSQL(ctx context.Context, places []*place, by []string, fast bool) error {
	for _, name := range by {
		if err := judgeBy(ctx, name, survivors(places)); err != nil {
			return err
		}
	}
	if fast {
		return nil
	}
	return judgeByTests(ctx, survivors(places))
}

func survivors(places []*place) []*place {
	return slices.DeleteFunc(slices.Clone(places), func(p *place) bool { return !p.survives() })
}

// judgeBy has the cases of a package judge mutants.
func judgeBy(ctx context.Context, name string, places []*place) error {
	if len(places) == 0 {
		return nil
	}
	fmt.Fprintf(os.Stderr, "%s judges %d mutants\n", name, len(places))
	dir, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	file, verdicts := filepath.Join(dir, "mutants"), filepath.Join(dir, "verdicts")
	var text bytes.Buffer
	byID := map[string]*place{}
	for _, p := range places {
		byID[p.id()] = p
		if err := json.NewEncoder(&text).Encode(judge.Mutant{ID: p.id(), Function: p.function, SQL: p.source}); err != nil {
			return err
		}
	}
	if err := os.WriteFile(file, text.Bytes(), 0o600); err != nil {
		return err
	}
	said, failure := testMutants(ctx, name, "-mutants.file="+file, "-mutants.verdicts="+verdicts)
	given, err := os.ReadFile(verdicts)
	if err != nil {
		return fmt.Errorf("%w\n%s", errors.Join(failure, err), said)
	}
	judged := 0
	for decoder := json.NewDecoder(bytes.NewReader(given)); decoder.More(); judged++ {
		var v judge.Verdict
		if err := decoder.Decode(&v); err != nil {
			return err
		}
		v.Cases += byID[v.ID].verdict.Cases
		byID[v.ID].verdict = v
	}
	if judged < len(places) {
		return fmt.Errorf("%s judged %d of %d mutants: %w\n%s", name, judged, len(places), failure, said)
	}
	return nil
}

func testMutants(ctx context.Context, name string, args ...string) (said []byte, err error) {
	args = append([]string{"test", name, "-vet=off", "-count=1", "-timeout=0", "-run=^TestMutants$"}, args...)
	run := exec.CommandContext(ctx, "go", args...)
	run.Env = append(os.Environ(), "GOFLAGS="+os.Getenv("GOFLAGS")+" -trimpath")
	return run.CombinedOutput()
}

// compareByHand shows the mutants that tests make by hand, and what the rules make of the same.
func compareByHand(ctx context.Context, places []*place) error {
	plain := func(function, source string) string { return function + strings.Join(strings.Fields(source), "") }
	byRule := map[string]*place{}
	for _, p := range places {
		byRule[plain(p.function, p.source)] = p
	}
	file := filepath.Join(os.TempDir(), fmt.Sprintf("mutants-by-hand-%d", os.Getpid()))
	defer os.Remove(file)
	for _, name := range judges {
		said, err := testMutants(ctx, name, "-mutants.byhand="+file)
		if err != nil {
			return fmt.Errorf("%w\n%s", err, said)
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		var byHand []judge.Mutant
		if err := json.Unmarshal(text, &byHand); err != nil {
			return err
		}
		slices.SortFunc(byHand, func(a, b judge.Mutant) int { return cmp.Compare(a.ID, b.ID) })
		for _, m := range byHand {
			same := "by hand alone"
			if p := byRule[plain(m.Function, m.SQL)]; p != nil {
				same = p.String()
			}
			fmt.Printf("%s %s: %q: %s\n", name, m.Function, m.ID, same)
		}
	}
	return nil
}

// score counts the verdicts on mutants.
type score struct{ killed, survived, equivalent, refused, left int }

func (s *score) add(p *place) {
	switch {
	case p.verdict.Refused != "":
		s.refused++
	case p.verdict.Killer != "":
		s.killed++
	case p.equivalent != "":
		s.equivalent++
	case p.left:
		s.left++
	default:
		s.survived++
	}
}

// write writes the report, also to the file.
func (c *command) write(places []*place) error {
	report, err := os.Create(c.report)
	if err != nil {
		return err
	}
	return errors.Join(write(io.MultiWriter(report, os.Stdout), places), report.Close())
}

func write(to io.Writer, places []*place) error {
	scores := map[string]*score{}
	for _, p := range places {
		for _, name := range []string{p.directory, "all"} {
			if scores[name] == nil {
				scores[name] = &score{}
			}
			scores[name].add(p)
		}
	}
	names := make([]string, 0, len(scores))
	for name := range scores {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Or(-cmp.Compare(b, "all"), cmp.Compare(a, b)) })
	var text strings.Builder
	fmt.Fprintf(&text, "%-10s %8s %8s %10s %8s %8s %7s\n", "directory", "killed", "survived", "equivalent", "refused", "left", "score")
	for _, name := range names {
		s := scores[name]
		fmt.Fprintf(&text, "%-10s %8d %8d %10d %8d %8d %6.1f%%\n", name, s.killed, s.survived, s.equivalent, s.refused, s.left,
			100*float64(s.killed)/float64(max(1, s.killed+s.survived)))
	}
	text.WriteString("\nSurvivors, and what was left:\n")
	for _, p := range places {
		if p.survives() {
			fmt.Fprintf(&text, "%s (%d cases)\n", p, p.verdict.Cases)
		}
	}
	_, err := io.WriteString(to, text.String())
	return err
}
