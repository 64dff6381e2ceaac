package main

import (
	"errors"
	"slices"
	"strconv"
	"testing"
)

// numbers is a source of pages with the numbers below total; it fails the test if a page of more than pageMax is requested.
func numbers(t *testing.T, total int, calls *int) func(string, int) ([]int, string, error) {
	return func(cursor string, limit int) ([]int, string, error) {
		*calls++
		if limit < 1 || limit > pageMax {
			t.Errorf("a page of %d was requested", limit)
		}
		first := 0
		if cursor != "" {
			first, _ = strconv.Atoi(cursor)
		}
		var page []int
		for n := first; n < min(first+limit, total); n++ {
			page = append(page, n)
		}
		// Like the gateway: a full page may be the last.
		if len(page) < limit {
			return page, "", nil
		}
		return page, strconv.Itoa(first + limit), nil
	}
}

func TestFollowEndsAtTheLimit(t *testing.T) {
	for _, test := range []struct{ total, limit, want, calls int }{
		{0, 1, 0, 1}, {1, 1, 1, 1}, {2, 1, 1, 1}, {5, 100, 5, 1}, {999, 999, 999, 1}, {1000, 1000, 1000, 2},
		{1000, 999, 999, 1}, {2500, 2000, 2000, 3}, {2500, 1 << 40, 2500, 3}, {2000, 1 << 40, 2000, 3},
	} {
		calls := 0
		got, more, err := follow(test.limit, numbers(t, test.total, &calls))
		if err != nil || len(got) != test.want || more != (test.total > test.limit) || calls != test.calls {
			t.Errorf("%+v: got %d, more %t, %d calls, %v", test, len(got), more, calls, err)
		}
		if !slices.IsSorted(got) || len(slices.Compact(got)) != test.want {
			t.Errorf("%+v: pages overlap", test)
		}
	}
}

func TestFollowFails(t *testing.T) {
	broken := errors.New("broken")
	if _, _, err := follow(5, func(string, int) ([]int, string, error) { return nil, "", broken }); !errors.Is(err,
		broken) {
		t.Errorf("got %v", err)
	}
	if _, _, err := follow(0, numbers(t, 1, new(int))); !isUsage(err) {
		t.Errorf("got %v, want a usage error", err)
	}
	calls := 0
	empty := func(string, int) ([]int, string, error) { calls++; return nil, "again", nil }
	if _, more, err := follow(5, empty); err != nil || more || calls != 1 {
		t.Errorf("pages without end were followed: %d calls, %v", calls, err)
	}
}
