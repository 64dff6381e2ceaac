package postgres_test

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/fencegate/fencegate/store"
)

// readPages reads a list of pages of at most limit rows to its end. after has the next page begin after a row.
func readPages[T any](t *testing.T, limit int, page func() ([]T, error), after func(row T)) (all []T) {
	t.Helper()
	for {
		rows, err := page()
		if err != nil || len(rows) > limit {
			t.Fatalf("a page has %d rows (%v), want at most %d", len(rows), err, limit)
		}
		all = append(all, rows...)
		if len(rows) < limit {
			return all
		}
		after(rows[len(rows)-1])
	}
}

// listNames are in byte order. The last of them are at the edge of what a prefix covers.
var listNames = []string{
	"A", "a", "a b", "a-b", "a/b", "a/b/c", "a/ä", "aa", "b", "ä", "ö/\U0010FFFF",
	"ö/\U0010FFFF" + strings.Repeat("\U0010FFFF", 120),
}

// listPrefixes is what names are asked for by: any text, not only a name.
var listPrefixes = []string{"", "a", "a/", "a/b", "/", "ö/", "ö/\U0010FFFF", "%", "a_b", "x"}

// TestListLimits checks that each list refuses queries outside its limits with an error that names the field.
func TestListLimits(t *testing.T) {
	t.Parallel()
	b, ctx := newTestbed(t), t.Context()
	long := strings.Repeat("x", store.NameBytesMax+1)
	for _, list := range []struct {
		name   string
		call   func(query any) error
		fields map[string]any // text that the error must have: the query
	}{
		{"locks", func(q any) error { _, err := b.Locks(ctx, q.(store.LockQuery)); return err },
			lockQueriesOutsideLimits(long)},
		{"count of locks", func(q any) error { _, err := b.CountLocks(ctx, q.(store.LockQuery)); return err },
			lockQueriesOutsideLimits(long)},
		{"leases", func(q any) error { _, err := b.Leases(ctx, q.(store.LeaseQuery)); return err }, map[string]any{
			"state must be": store.LeaseQuery{State: "free", Limit: 1}, "limit is 0": store.LeaseQuery{},
			"limit is 1001": store.LeaseQuery{Limit: 1001}, "after the token -1": store.LeaseQuery{AfterToken: -1, Limit: 1},
			"owner_id has a": store.LeaseQuery{OwnerID: "\n", Limit: 1},
		}},
		{"sessions", func(q any) error { _, err := b.Sessions(ctx, q.(store.SessionQuery)); return err }, map[string]any{
			"state must be": store.SessionQuery{State: "held", Limit: 1}, "limit is 0": store.SessionQuery{},
			"limit is 1001": store.SessionQuery{Limit: 1001}, "owner_id has 513": store.SessionQuery{OwnerID: long, Limit: 1},
			"hexadecimal": store.SessionQuery{AfterMicros: 1, AfterSortKey: "x", Limit: 1},
		}},
		{"elections", func(q any) error { _, err := b.Elections(ctx, q.(store.ElectionQuery)); return err }, map[string]any{
			"limit is 0": store.ElectionQuery{},
		}},
		{"records", func(q any) error { _, err := b.Records(ctx, q.(store.RecordQuery)); return err }, map[string]any{
			"limit is -1": store.RecordQuery{Resource: "r", Limit: -1}, "limit is 0": store.RecordQuery{Resource: "r"},
			"limit is 1001": store.RecordQuery{Resource: "r", Limit: 1001},
		}},
		{"rejections", func(q any) error { _, err := b.Rejections(ctx, q.(store.RejectionQuery)); return err },
			map[string]any{
				"limit is -1": store.RejectionQuery{Limit: -1}, "limit is 0": store.RejectionQuery{},
				"limit is 1001": store.RejectionQuery{Limit: 1001}, "sort must be": store.RejectionQuery{Order: "count", Limit: 1},
			}},
	} {
		for field, query := range list.fields {
			if err := list.call(query); !errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), field) {
				t.Errorf("%s, %+v: %v, want ErrInvalid with %q", list.name, query, err, field)
			}
		}
	}
	if leases, err := b.Leases(ctx, store.LeaseQuery{AfterToken: math.MaxInt64, Limit: 1}); err != nil {
		t.Errorf("leases after the greatest token: %v (%v), want no error", leases, err)
	}
}

func lockQueriesOutsideLimits(long string) map[string]any {
	return map[string]any{
		"sort must be":      store.LockQuery{Limit: 1, Sort: "owner"},
		"state must be":     store.LockQuery{Limit: 1, State: "gone"},
		"queue_max is -1":   store.LockQuery{Limit: 1, QueueMax: -1},
		"queue_max is 1001": store.LockQuery{Limit: 1, QueueMax: 1001},
		"contains has 513":  store.LockQuery{Limit: 1, Contains: long},
		"contains is not":   store.LockQuery{Limit: 1, Contains: "\xff"},
		"contains has a":    store.LockQuery{Limit: 1, Contains: "\x00"},
		"owner_id has 513":  store.LockQuery{Limit: 1, OwnerID: long},
		"owner_id is not":   store.LockQuery{Limit: 1, OwnerID: "\xff"},
		"limit is 0":        store.LockQuery{},
	}
}
