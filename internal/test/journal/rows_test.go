package journal

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/fencegate/fencegate/internal/test/spec"
	"github.com/fencegate/fencegate/store"
)

// good is a history without faults, below a subtree: a write, one that is refused, a transaction without an answer, and a
// write under the next lease.
const good = `
0 10-11 acquire a owner=x scope=subtree -> granted token=4 id=00000000-0000-0000-0000-000000000004
0 12-13 put a/b owner=x token=4 sequence=1 key=w/4.1 value="put 4.1" -> admitted version=1
0 14-15 put a/b owner=x token=4 sequence=2 key=w/4.2 value="put 4.2" -> token_stale
0 16-never transact ; token a/b token=4 sequence=3 ; put a/b key=w/4.3 value="t 4.3" ; put a/b key=last value="t 4.3" -> unknown
1 20-21 acquire a/b owner=y -> granted token=7 id=00000000-0000-0000-0000-000000000007
1 22-23 put a/b owner=y token=7 sequence=1 key=w/7.1 value="put 7.1" -> admitted version=3`

func at(seconds int64) time.Time { return time.Unix(seconds, 0) }

func goodRows() rows {
	r := rows{
		leases: []lease{
			{"a", "x", uuid.UUID{15: 4}, 4, store.Exclusive, store.Subtree, at(110), at(120)},
			{"a/b", "y", uuid.UUID{15: 7}, 7, store.Exclusive, store.Node, at(120), at(130)},
		},
		records: map[[2]store.Name]record{},
		fences:  map[store.Name]fence{"a": {GrantedToken: 4}, "a/b": {"a/b", 7, 7, 1, 3}},
	}
	for _, one := range []record{
		{"a/b", "w/4.1", 1, 4, 1, "put 4.1", at(112)}, {"a/b", "w/4.3", 2, 4, 3, "t 4.3", at(116)},
		{"a/b", "last", 2, 4, 3, "t 4.3", at(116)}, {"a/b", "w/7.1", 3, 7, 1, "put 7.1", at(122)},
	} {
		r.records[[2]store.Name{"a/b", one.Key}] = one
	}
	return r
}

func (r rows) change(key store.Name, change func(*record)) {
	of := r.records[[2]store.Name{"a/b", key}]
	change(&of)
	r.records[[2]store.Name{"a/b", key}] = of
}

func (r rows) remove(key store.Name) { delete(r.records, [2]store.Name{"a/b", key}) }

// TestCompare checks that rows which contradict the answers, or each other, are found.
func TestCompare(t *testing.T) {
	t.Parallel()
	for want, spoil := range map[string]func(*rows){
		"": func(*rows) {},
		"P9 on a/b, by its rows: a grant is lost":                 func(r *rows) { r.leases[1].ID = uuid.UUID{} },
		"P9 on a, by its rows: the fence knows no grant above 0":  func(r *rows) { r.fences["a"] = fence{} },
		"P1 on a/b, by its rows: leases overlap":                  func(r *rows) { r.leases[0].EndsAt = at(121) },
		"P9 on a/b, by its rows: an acknowledged write is lost":   func(r *rows) { r.remove("w/7.1") },
		"P9 on a/b, by its rows: an acknowledged write is lost: ": func(r *rows) { r.remove("w/4.1") },
		"P12 on a/b, by its rows: a refused write is there": func(r *rows) {
			r.change("w/4.2", func(of *record) { *of = record{"a/b", "w/4.2", 2, 4, 2, "put 4.2", at(115)} })
		},
		"P5 on a/b, by its rows: no client sent":        func(r *rows) { r.change("w/4.1", func(of *record) { of.Value = "w" }) },
		"P5 on a/b, by its rows: no client sent ":       func(r *rows) { r.change("w/4.1", func(of *record) { of.Sequence = 9 }) },
		"was admitted under token 0":                    func(r *rows) { r.leases = r.leases[1:] },
		"shared, subtree on a":                          func(r *rows) { r.leases[0].Mode = store.Shared },
		"was admitted under token 4 of x (exclusive, n": func(r *rows) { r.leases[0].Scope = store.Node },
		"was stored after the grant of token 7 of y":    func(r *rows) { r.change("w/4.3", func(of *record) { of.UpdatedAt = at(121) }) },
		"P4 on a/b, by its rows: half of a write":       func(r *rows) { r.remove("last") },
		"half of a write is there: ":                    func(r *rows) { r.change("last", func(of *record) { of.Version = 1 }) },
		"P10 on a/b, by its rows: the fence counts 4":   func(r *rows) { r.fences["a/b"] = fence{"a/b", 7, 7, 1, 4} },
		"P10 on a/b, by its rows: the fence counts 3":   func(r *rows) { r.change("w/7.1", func(of *record) { of.Version = 4 }) },
		"P4 on a/b, by its rows: the last write is 7.1": func(r *rows) { r.fences["a/b"] = fence{"a/b", 7, 4, 3, 3} },
	} {
		calls, err := spec.ReadCalls(strings.NewReader(good))
		if err != nil {
			t.Fatal(err)
		}
		r := goodRows()
		spoil(&r)
		found := compare(calls, r)
		if !slices.ContainsFunc(found, func(what string) bool { return strings.Contains(what, want) }) != (want == "") {
			t.Errorf("%q is not found, but %q", want, found)
		}
		if want == "" {
			for _, violation := range spec.Check(slices.Concat(calls, r.readings(calls, 30))) {
				t.Error(violation)
			}
		}
	}
}

// TestCompareExcusesLosses checks that what a loss took back is no violation, and what was answered later is.
func TestCompareExcusesLosses(t *testing.T) {
	t.Parallel()
	for until, violations := range map[string]int{"30": 0, "20": 3} {
		calls, err := spec.ReadCalls(strings.NewReader(good + "\n0 20-" + until + " lose -> done"))
		if err != nil {
			t.Fatal(err)
		}
		r := goodRows()
		r.leases = r.leases[:1]
		r.remove("w/7.1")
		r.fences["a/b"] = fence{"a/b", 4, 4, 3, 2}
		if found := compare(calls, r); len(found) != violations {
			t.Errorf("with a loss until %s, it finds %q", until, found)
		}
	}
}
