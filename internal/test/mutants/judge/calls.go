package judge

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/migrations"
)

// measure finds out which functions cases call: a few at a time where they use the sessions of a bed again, which take
// most of the time. Neighbours are alike.
func (j *judge[B]) measure(t *testing.T) {
	t.Helper()
	next := make(chan []Case[B], len(j.All))
	begin, few := 0, neighbours
	if j.Clean == nil {
		few = 1
	}
	for end := 1; end <= len(j.All); end++ {
		if end == len(j.All) || end-begin == few || j.All[end].Apart || j.All[end-1].Apart {
			next <- j.All[begin:end]
			begin = end
		}
	}
	close(next)
	for i := range measured {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			url := j.tracked(t)
			for cases := range next {
				if !cases[0].Apart {
					if err := j.measureCases(t, url, cases); err == nil {
						continue
					}
				}
				url = j.tracked(t) // a case before may have spoiled the other one
				if err := j.measureCases(t, url, cases); err != nil {
					t.Error(err)
				}
				if cases[0].Apart {
					url = j.tracked(t)
				}
			}
		})
	}
}

// tracked returns a database that counts the calls of functions.
func (j *judge[B]) tracked(t *testing.T) (url string) {
	t.Helper()
	url = j.Database(t)
	conn := connect(t, url)
	_, err := conn.Exec(t.Context(), "do $$ begin execute format('alter database %I set track_functions = %L', "+
		"current_database(), 'all'); end $$")
	check(t, err)
	return url
}

// measureCases notes the functions that cases call.
func (j *judge[B]) measureCases(t *testing.T, url string, cases []Case[B]) (err error) {
	t.Helper()
	t.Run(cases[0].Name, func(t *testing.T) {
		conn := connect(t, url)
		var begun time.Time
		check(t, conn.QueryRow(t.Context(), "select clock_timestamp() from pg_stat_reset()").Scan(&begun))
		t.Run("", func(t *testing.T) {
			bed := j.Open(t, url)
			for _, c := range cases {
				if failure := attempt(t.Context(), c, bed); failure != nil {
					err = fmt.Errorf("%s: %w", c.Name, failure)
				}
			}
		})
		if err != nil {
			return
		}
		// A session counts its calls for others when it has ended.
		check(t, await.Nil(func() error {
			var left int
			err := conn.QueryRow(t.Context(), "select count(*) from pg_stat_activity where datname = current_database() "+
				"and backend_start > $1", begun).Scan(&left)
			if err == nil && left > 0 {
				err = fmt.Errorf("%d sessions do not end", left)
			}
			return err
		}))
		rows, _ := conn.Query(t.Context(), "select funcname from pg_stat_user_functions where schemaname = 'fence' and calls > 0")
		names, err := pgx.CollectRows(rows, pgx.RowTo[string])
		check(t, err)
		j.mu.Lock()
		defer j.mu.Unlock()
		for _, c := range cases {
			j.calls[c.Name] = names
		}
	})
	return err
}

var (
	called  = regexp.MustCompile(`\bfence\.\w+`)
	comment = regexp.MustCompile(`--.*`)
)

// Callers is callersOf, once for each function.
var Callers = func() func(string) []string {
	var known sync.Map
	return func(function string) []string {
		found, ok := known.Load(function)
		if !ok {
			found, _ = known.LoadOrStore(function, callersOf(function))
		}
		return found.([]string)
	}
}()

// callersOf returns the functions whose calls are those of a function, too. PostgreSQL does not count a view, nor a
// function that it has put into the statement that calls it: their callers count.
func callersOf(function string) []string {
	found := []string{function}
	for i := 0; i < len(found); i++ {
		source, _ := migrations.GuardSource(found[i])
		if !strings.Contains(source, "\nlanguage sql") && !strings.Contains(source, "replace view") {
			continue
		}
		for _, other := range migrations.Functions() {
			text, _ := migrations.GuardSource(other)
			calls := called.FindAllString(comment.ReplaceAllString(text, ""), -1)
			if slices.Contains(calls, "fence."+found[i]) && !slices.Contains(found, other) {
				found = append(found, other)
			}
		}
	}
	return found
}

func (j *judge[B]) calledBy(c Case[B], function string) bool {
	any := Callers(function)
	return slices.ContainsFunc(j.calls[c.Name], func(f string) bool { return slices.Contains(any, f) })
}

// candidates are the cases that can notice that a function is broken. Those that have noticed other mutants of it come
// first, then broad ones, then the others by chance: neighbours are alike.
func (j *judge[B]) candidates(function string) (cases []Case[B]) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, c := range j.All {
		if j.calledBy(c, function) {
			cases = append(cases, c)
		}
	}
	rand.Shuffle(len(cases), func(i, k int) { cases[i], cases[k] = cases[k], cases[i] }) //nolint:gosec // no secret
	slices.SortStableFunc(cases, func(a, b Case[B]) int {
		return cmp.Compare(j.rank(function, a), j.rank(function, b))
	})
	return cases
}

func (j *judge[B]) rank(function string, c Case[B]) int {
	if i := slices.Index(j.killers[function], c.Name); i >= 0 {
		return i
	}
	if c.Broad {
		return len(j.All)
	}
	return len(j.All) + 1
}
