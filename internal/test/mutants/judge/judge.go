// Package judge lets the cases of a test package judge broken SQL functions, for internal/test/mutants.
//
// It first measures which functions the cases call, and then runs, for each broken function, the cases that call it,
// until one fails.
package judge

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencegate/fencegate/migrations"
)

var mutantsFile, verdictsFile, byHandFile string

func init() {
	if testing.Testing() {
		flag.StringVar(&mutantsFile, "mutants.file", "", "judge the broken functions of this `file`, one JSON object on a line")
		flag.StringVar(&verdictsFile, "mutants.verdicts", "", "write a verdict for each to this `file`")
		flag.StringVar(&byHandFile, "mutants.byhand", "", "write the functions that this package breaks itself to this `file`")
	}
}

// Mutant is a broken function.
type Mutant struct {
	ID       string
	Function string // fence.<function>
	SQL      string // that makes it
}

// Verdict is what the cases say of a mutant.
type Verdict struct {
	ID      string
	Refused string // PostgreSQL's error: it does not take the function
	Killer  string // the case that failed; "" if none did
	Failure string // of the killer
	Cases   int    // how many ran
}

// Case fails if something is broken. B is what it runs on.
type Case[B any] struct {
	Name string
	Run  func(ctx context.Context, bed B) error
	// Apart says that it needs a database that no other case has used.
	Apart bool
	// Broad says that it does many things, such as a random sequence: it judges before others.
	Broad bool
}

// Cases are those of a test package.
type Cases[B any] struct {
	All []Case[B]
	// Database makes a database, which lasts as long as the test, and returns its URL.
	Database func(t *testing.T) string
	// Open opens a database for cases. What it opens is closed at the end of the test.
	Open func(t *testing.T, url string) B
	// Clean removes what some cases have left, which would make others slow; nil if it does not.
	Clean func(ctx context.Context, bed B) error
	// ByHand returns the functions that the package breaks itself. The tool shows which of them its rules make.
	ByHand func(t *testing.T) []Mutant
}

const (
	casePatience  = 20 * time.Second // none takes a tenth of it
	cleanPatience = 2 * time.Second
	measured      = 6  // databases in which cases are measured at once
	neighbours    = 4  // cases that are measured together
	cleaned       = 20 // cases after which a database is cleaned
	kept          = 4  // databases that are kept for others: each has sessions, of which a server has few
	firstCases    = 12 // that judge a mutant alone
	together      = 12 // mutants that all other cases judge at once
)

// Judge runs the cases on the broken functions that the command line names. Without any, it skips the test.
func Judge[B any](t *testing.T, cases Cases[B]) {
	t.Helper()
	if byHandFile != "" {
		text, err := json.Marshal(cases.ByHand(t))
		check(t, errors.Join(err, os.WriteFile(byHandFile, text, 0o600)))
		return
	}
	if mutantsFile == "" {
		t.Skip("-mutants.file names no broken functions")
	}
	mutants := read(t, mutantsFile)
	to, err := os.Create(verdictsFile)
	check(t, err)
	defer to.Close()
	j := &judge[B]{Cases: cases, t: t, idle: make(chan *bed[B], kept), to: json.NewEncoder(to), calls: map[string][]string{},
		killers: map[string][]string{}}
	begun := time.Now()
	t.Run("calls", func(t *testing.T) { j.measure(t) })
	t.Logf("measured %d cases in %s", len(cases.All), time.Since(begun).Round(time.Second))
	results := make([]*result, len(mutants))
	t.Run("first", func(t *testing.T) {
		for i, m := range mutants {
			results[i] = &result{Mutant: m, Verdict: Verdict{ID: m.ID}}
			t.Run(m.Function, func(t *testing.T) {
				t.Parallel()
				cases := j.candidates(m.Function)
				j.judge(t, cases[:min(len(cases), firstCases)], results[i])
			})
		}
	})
	t.Run("together", func(t *testing.T) {
		for _, group := range groups(results) {
			t.Run(fmt.Sprint(len(group)), func(t *testing.T) {
				t.Parallel()
				j.judgeTogether(t, slices.Clone(group))
				for _, r := range group {
					if !r.decided() {
						j.write(r)
					}
				}
			})
		}
	})
}

// result is a mutant with its verdict.
type result struct {
	Mutant
	Verdict
}

func (r *result) decided() bool { return r.Killer != "" || r.Refused != "" }

// groups returns what is not decided, in groups of mutants of different functions.
func groups(results []*result) (found [][]*result) {
	for _, r := range results {
		if r.decided() {
			continue
		}
		i := slices.IndexFunc(found, func(group []*result) bool {
			return len(group) < together && !slices.ContainsFunc(group, func(o *result) bool { return o.Function == r.Function })
		})
		if i < 0 {
			i, found = len(found), append(found, nil)
		}
		found[i] = append(found[i], r)
	}
	return found
}

func read(t *testing.T, file string) (mutants []Mutant) {
	t.Helper()
	from, err := os.Open(file)
	check(t, err)
	defer from.Close()
	decoder := json.NewDecoder(bufio.NewReader(from))
	for decoder.More() {
		var m Mutant
		check(t, decoder.Decode(&m))
		mutants = append(mutants, m)
	}
	return mutants
}

type judge[B any] struct {
	Cases[B]
	t    *testing.T
	idle chan *bed[B]
	to   *json.Encoder // of verdicts

	mu      sync.Mutex
	calls   map[string][]string // functions by case, of those that pass
	killers map[string][]string // cases by function: those that killed others of its mutants, the last one first
}

// bed is a database, and what cases need on it.
type bed[B any] struct {
	of    B
	admin *pgx.Conn
	uses  int
}

// leave ends all sessions: what cases have left must not hold up the end of the database, and its place is for others.
func (b *bed[B]) leave() {
	ctx := context.Background()
	_, _ = b.admin.Exec(ctx, "do $$ begin execute format('alter database %I allow_connections false', current_database()); end $$")
	_, _ = b.admin.Exec(ctx, "select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() "+
		"and pid <> pg_backend_pid()")
	_ = b.admin.Close(ctx)
}

// take returns a bed that has the mutants, or the error of PostgreSQL, which does not take one. Beds that can be cleaned
// are used again: new sessions, which plan all statements anew, would take longer than most cases.
func (j *judge[B]) take(t *testing.T, mutants []*result, fresh bool) (*bed[B], error) {
	t.Helper()
	var taken *bed[B]
	if j.Clean != nil {
		t = j.t
	}
	if !fresh {
		select {
		case taken = <-j.idle:
		default:
		}
	}
	if taken == nil {
		url := j.Database(t)
		taken = &bed[B]{admin: connect(t, url)}
		t.Cleanup(func() { taken.leave() })
		taken.of = j.Open(t, url)
	}
	for i, m := range mutants {
		if _, err := taken.admin.Exec(t.Context(), m.SQL); err != nil {
			j.give(t, taken, mutants[:i])
			return nil, err
		}
	}
	return taken, nil
}

// give mends a bed, and keeps it for others if it is clean then.
func (j *judge[B]) give(t *testing.T, taken *bed[B], mutants []*result) {
	t.Helper()
	if j.Clean != nil && j.mend(t, taken, mutants) == nil {
		select {
		case j.idle <- taken:
			return
		default:
		}
	}
	taken.leave()
}

// mend takes the mutants out of a bed, and cleans it.
func (j *judge[B]) mend(t *testing.T, taken *bed[B], mutants []*result) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), casePatience)
	defer cancel()
	for _, m := range mutants {
		source, _ := migrations.GuardSource(m.Function)
		if _, err := taken.admin.Exec(ctx, source); err != nil {
			return err
		}
	}
	taken.uses = 0
	return j.clean(ctx, taken.of)
}

// clean does not wait long for what a case has left locked.
func (j *judge[B]) clean(ctx context.Context, of B) error {
	ctx, cancel := context.WithTimeout(ctx, cleanPatience)
	defer cancel()
	return j.Clean(ctx, of)
}

// judge runs cases on mutants, all of which are in one database, until one fails because of them. It notes a killer only
// of a mutant that is alone.
func (j *judge[B]) judge(t *testing.T, cases []Case[B], mutants ...*result) (failed *Case[B]) {
	t.Helper()
	ctx := t.Context()
	on, err := j.take(t, mutants, false)
	if err != nil {
		mutants[0].Refused = err.Error()
		j.write(mutants[0])
		return nil
	}
	defer func() { j.give(t, on, mutants) }()
	for _, c := range cases {
		for _, m := range mutants {
			m.Cases++
		}
		if j.Clean != nil && on.uses%cleaned == cleaned-1 {
			_ = j.clean(ctx, on.of) // a case fails if it was not
		}
		fresh := on.uses == 0 && j.Clean == nil
		if !fresh && c.Apart {
			err = errors.New("it needs another database")
		} else {
			on.uses++
			err = attempt(ctx, c, on.of)
		}
		guilty := err != nil && !fresh && j.guilty(ctx, t, c, on, mutants)
		if err != nil && !fresh && !guilty {
			on.leave() // a case before may have spoiled the database
			if on, err = j.take(t, mutants, true); err != nil {
				t.Fatal(err)
			}
			on.uses++
			err = attempt(ctx, c, on.of)
		}
		if c.Apart {
			on.uses = max(on.uses, 1)
		}
		if err == nil || !guilty && !j.passes(ctx, t, c) {
			continue
		}
		if len(mutants) == 1 {
			j.killed(mutants[0], c, err)
		}
		return &c
	}
	return nil
}

// guilty is whether a case that has failed does so again in the database when that was cleaned, and not when it has no
// mutants.
func (j *judge[B]) guilty(ctx context.Context, t *testing.T, c Case[B], on *bed[B], mutants []*result) bool {
	t.Helper()
	if j.Clean == nil || j.clean(ctx, on.of) != nil || attempt(ctx, c, on.of) == nil {
		return false
	}
	return j.mend(t, on, mutants) == nil && attempt(ctx, c, on.of) == nil
}

// passes is whether a case passes without mutants, now that the machine may be busy.
func (j *judge[B]) passes(ctx context.Context, t *testing.T, c Case[B]) bool {
	t.Helper()
	on, err := j.take(t, nil, true)
	check(t, err)
	defer j.give(t, on, nil)
	return attempt(ctx, c, on.of) == nil
}

func (j *judge[B]) killed(m *result, by Case[B], err error) {
	m.Killer, m.Failure = by.Name, err.Error()
	j.write(m)
	j.mu.Lock()
	defer j.mu.Unlock()
	others := slices.DeleteFunc(j.killers[m.Function], func(name string) bool { return name == by.Name })
	j.killers[m.Function] = slices.Insert(others, 0, by.Name)
}

// write writes a verdict as soon as it is known: whatever happens later, it is not lost.
func (j *judge[B]) write(r *result) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.to.Encode(r.Verdict); err != nil {
		j.t.Error(err)
	}
}

// mayCall is whether a case may call a function. PostgreSQL does not count a call that fails, nor one of a function that
// it has put into the statement of a script, so each script may.
func (j *judge[B]) mayCall(c Case[B], m *result) bool {
	return j.Clean == nil || j.calledBy(c, m.Function)
}

// judgeTogether finds the mutants of a group that a case notices. Most mutants that the first cases have not noticed are
// noticed by none, so it takes them together.
func (j *judge[B]) judgeTogether(t *testing.T, group []*result) {
	t.Helper()
	seen := map[string]bool{}
	for len(group) > 0 {
		var cases []Case[B]
		for _, c := range j.All {
			if !seen[c.Name] && slices.ContainsFunc(group, func(m *result) bool { return j.mayCall(c, m) }) {
				cases = append(cases, c)
			}
		}
		failed := j.judge(t, cases, group...)
		if failed == nil || len(group) == 1 {
			return
		}
		for _, c := range cases {
			seen[c.Name] = true
			if c.Name == failed.Name {
				break
			}
		}
		suspects := slices.DeleteFunc(slices.Clone(group), func(m *result) bool { return !j.mayCall(*failed, m) })
		for _, m := range suspects {
			j.judge(t, []Case[B]{*failed}, m)
		}
		if !slices.ContainsFunc(suspects, (*result).decided) { // it fails by several of them, so each is judged alone
			for _, m := range suspects {
				j.judge(t, j.candidates(m.Function), m)
			}
			group = slices.DeleteFunc(group, func(m *result) bool { return slices.Contains(suspects, m) })
		}
		group = slices.DeleteFunc(group, (*result).decided)
	}
}

// attempt runs a case. One that panics, or does not end, has failed.
func attempt[B any](ctx context.Context, c Case[B], bed B) error {
	ctx, cancel := context.WithTimeout(ctx, casePatience)
	defer cancel()
	done := make(chan error, 1)
	go func() {
		defer func() {
			if cause := recover(); cause != nil {
				done <- fmt.Errorf("panic: %v", cause)
			}
		}()
		done <- c.Run(ctx, bed)
	}()
	select {
	case err := <-done:
		return err
	case <-time.After(casePatience + casePatience/4):
		return errors.New("it does not end")
	}
}

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	check(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
