package store_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/fencegate/fencegate/store"
)

// What was written last comes first, also where many were written at once.
func TestRecordsByTime(t *testing.T) {
	t.Parallel()
	b := newTestbed(t)
	s := &fixture{testbed: b, lock: "records"}
	if err := s.do(t.Context(), acquire); err != nil {
		t.Fatal(err)
	}
	type row struct {
		key string
		at  time.Time
	}
	var rows []row
	begin := time.Date(2026, 1, 1, 0, 0, 0, 123_456_000, time.UTC)
	for i := range 60 {
		r := row{fmt.Sprintf("%s/%02d", []string{"a", "b<i>"}[i%2], i), begin.Add(time.Duration(rand.IntN(20)) * time.Microsecond)}
		if err := s.do(t.Context(), wrote(with(newest, sequence(int64(i)), key(store.Name(r.key)), value("v")))); err != nil {
			t.Fatal(err)
		}
		b.exec(t, "update fence.records set updated_at = $2 where key = $1", r.key, r.at)
		rows = append(rows, r)
	}
	slices.SortFunc(rows, func(a, b row) int { return cmp.Or(b.at.Compare(a.at), cmp.Compare(a.key, b.key)) })
	for _, prefix := range []string{"", "a", "b<", "c"} {
		for _, limit := range []int{1, 7, 20, 60, 1000} {
			var got, want []string
			for _, r := range rows {
				want = append(want, r.key)
			}
			query := store.RecordQuery{Resource: s.lock, Prefix: prefix, ByTime: true, Limit: limit}
			for last := limit; last == limit; {
				records, err := b.Records(t.Context(), query)
				if err != nil {
					t.Fatal(err)
				}
				for _, record := range records {
					got = append(got, string(record.Key))
					query.After, query.AfterMicros = string(record.Key), record.UpdatedAt.UnixMicro()
				}
				last = len(records)
			}
			if want := withPrefix(want, prefix); !slices.Equal(got, want) {
				t.Errorf("prefix %q by %d: %q, want %q", prefix, limit, got, want)
			}
		}
	}
}
