package postgres_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencegate/fencegate/store"
)

// TestRecordLists checks that the records of a resource are listed by key, or the last written first, in pages of any
// size, with any prefix.
func TestRecordLists(t *testing.T) {
	t.Parallel()
	s := newFixture(t, acquire, onBelow("/other", acquire, wrote(with(newest))))
	names := slices.Clone(listNames)
	for i := range 40 {
		names = append(names, fmt.Sprintf("%s/%02d", []string{"a", "b<i>"}[i%2], i))
	}
	var rows []store.Record
	begin := time.Date(2026, 1, 1, 0, 0, 0, 123_456_000, time.UTC)
	for i, name := range names {
		write := with(newest, sequence(int64(i)), key(store.Name(name)), value(name))
		if err := s.do(t.Context(), wrote(write)); err != nil {
			t.Fatal(err)
		}
		at := begin.Add(time.Duration(rand.IntN(20)) * time.Microsecond) // many at once
		s.Exec(t, "update fence.records set updated_at = $2 where resource = 'lock' and key = $1", name, at)
		rows = append(rows, store.Record{
			Resource: s.lock, Key: store.Name(name), Version: int64(i) + 1, Token: s.newest().Token, Sequence: new(int64(i)),
			Size: int64(len(name)), ContentType: "text/plain", UpdatedAt: at,
		})
	}
	for _, byTime := range []bool{false, true} {
		slices.SortFunc(rows, func(a, b store.Record) int {
			if byTime {
				return cmp.Or(b.UpdatedAt.Compare(a.UpdatedAt), cmp.Compare(a.Key, b.Key))
			}
			return cmp.Compare(a.Key, b.Key)
		})
		for _, prefix := range append(listPrefixes, "b<", "c") {
			for _, limit := range []int{1, 3, 7, 20, len(rows), 1000} {
				query := store.RecordQuery{Resource: s.lock, Prefix: prefix, ByTime: byTime, Limit: limit}
				want := slices.DeleteFunc(slices.Clone(rows), func(r store.Record) bool {
					return !strings.HasPrefix(string(r.Key),
						prefix)
				})
				got := recordPages(t, s.testbed, query)
				if text(got) != text(want) {
					t.Errorf("%+v:\n%s\nwant\n%s", query, text(got), text(want))
				}
			}
		}
	}
}

// recordPages reads a list to its end.
func recordPages(t *testing.T, b *testbed, query store.RecordQuery) (all []store.Record) {
	t.Helper()
	return readPages(t, query.Limit, func() ([]store.Record, error) { return b.Records(t.Context(), query) },
		func(last store.Record) {
			query.After, query.AfterMicros = string(last.Key), last.UpdatedAt.UnixMicro()
		})
}

// text shows records in lines, with what is pointed to.
func text(records []store.Record) string {
	lines := make([]string, len(records))
	for i, r := range records {
		number := *r.Sequence
		r.Sequence, r.UpdatedAt = nil, r.UpdatedAt.UTC()
		lines[i] = fmt.Sprintf("%+v %d", r, number)
	}
	return strings.Join(lines, "\n")
}
