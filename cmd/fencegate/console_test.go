package main

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fencegate/fencegate/lockclient"
	"github.com/fencegate/fencegate/lockclient/api"
)

func TestTablesAlignAndCantSteerTheTerminal(t *testing.T) {
	var out strings.Builder
	con := &console{streams: streams{out: &out}}
	err := list(con, []string{"LOCK", "OWNER"}, []string{"a", "größer", "x\x1b[2J\ny\u202e"}, func(name string) []string {
		return []string{name, ""}
	})
	const want = "LOCK      OWNER\na         -\ngrößer    -\nx�[2J�y�  -\n"
	if err != nil || out.String() != want {
		t.Errorf("got %q, %v, want %q", out.String(), err, want)
	}
}

// A list without rows is a heading, without the column that only rows fill, or no document.
func TestEmptyLists(t *testing.T) {
	for format, want := range map[outputFormat]string{formatTable: "LOCK\n", formatJSON: "", formatYAML: ""} {
		var out strings.Builder
		con := &console{streams: streams{out: &out}, format: format}
		err := list(con, []string{"LOCK", principalHeading}, []string{}, func(string) []string { return nil })
		if err != nil || out.String() != want {
			t.Errorf("%s: got %q, %v, want %q", format, out.String(), err, want)
		}
	}
}

type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, errors.New("no space left") }

func TestOutputThatIsLostIsAFailure(t *testing.T) {
	for _, format := range []outputFormat{formatTable, formatJSON, formatYAML, formatEnv} {
		con := &console{streams: streams{out: fullDisk{}}, format: format}
		if con.show(api.Released{}, []field{{"released", "a"}}) == nil {
			t.Errorf("%s: nothing was said", format)
		}
	}
}

func TestErrorsInJSONAreProblems(t *testing.T) {
	for want, err := range map[string]error{
		`{"type":"t","title":"","status":0,"detail":"<d>","code":"not_found","retryable":false}`:                 &lockclient.Error{Op: "x", Problem: &api.Problem{Type: "t", Code: api.CodeNotFound, Detail: "<d>"}},
		`{"type":"about:blank","title":"Failed","status":500,"detail":"disk","code":"failed","retryable":false}`: errors.New("disk"),
		`"code":"foreign_answer"`: &lockclient.AnswerError{Op: "x"},
	} {
		var out strings.Builder
		con := &console{streams: streams{err: &out}, format: formatJSON}
		con.fail(err)
		if !strings.Contains(out.String(), want) || strings.Count(out.String(), "\n") != 1 {
			t.Errorf("got %s, want %s", out.String(), want)
		}
	}
}

func TestRejectionsAreExplained(t *testing.T) {
	at := api.Time{Time: time.Date(2026, 1, 2, 4, 4, 5, 6e6, time.FixedZone("east", 3600))}
	for want, rejection := range map[string]api.Rejection{
		"2026-01-02T03:04:05Z a/b k token_stale/superseded 7.2 9 12.3s w1 app http 400": {
			Resource: "a/b", Key: "k", Code: api.CodeTokenStale, Reason: "superseded", Token: new(int64(7)), Sequence: new(int64(2)),
			GrantedToken: 9, LastToken: 7, LastSequence: 1, LateMS: new(int64(12_345)), OwnerID: "w1", Principal: "app",
			Source: "http", Count: 400,
			LastAt: at,
		},
		"2026-01-02T03:04:05Z a k token_stale/reused 7 7.3    http 1": {
			Resource: "a", Key: "k", Code: api.CodeTokenStale, Reason: "reused", Token: new(int64(7)),
			GrantedToken: 7, LastToken: 7, LastSequence: 3, Source: "http", Count: 1, LastAt: at,
		},
		"2026-01-02T03:04:05Z a  token_required  9    http 1": {
			Resource: "a", Code: api.CodeTokenRequired, GrantedToken: 9, Source: "http", Count: 1, LastAt: at,
		},
	} {
		if got := strings.Join(rejectionRow(rejection), " "); got != want {
			t.Errorf("got  %q\nwant %q", got, want)
		}
	}
	for ms, want := range map[int64]string{0: "0s", 7: "7ms", 999: "999ms", 1_049: "1s", 59_949: "59.9s", 61_499: "1m1s"} {
		if got := late(&ms); got != want {
			t.Errorf("%d ms are shown as %s, want %s", ms, got, want)
		}
	}
}

func TestTypesAreGuessedByTheValue(t *testing.T) {
	for value, want := range map[string]string{
		`{"a":1}`: "application/json", "5\n": "application/json", "": "text/plain; charset=utf-8",
		"häh": "text/plain; charset=utf-8", "{": "text/plain; charset=utf-8", "\xff": "application/octet-stream",
	} {
		if got := guessType([]byte(value)); got != want {
			t.Errorf("%q is %s, want %s", value, got, want)
		}
	}
}

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
		{1, 1, 1, 1}, {2, 1, 1, 1}, {999, 999, 999, 1}, {1000, 1000, 1000, 2}, {2500, 2000, 2000, 3}, {2000, 1 << 40, 2000, 3},
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
