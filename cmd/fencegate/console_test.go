package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/lockclient"
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
		"2026-01-02T03:04:05Z a k token_stale/superseded 7 8    http 1": { // tokens of another lock service
			Resource: "a", Key: "k", Code: api.CodeTokenStale, Reason: "superseded", Token: new(int64(7)),
			LastToken: 8, Source: "http", Count: 1, LastAt: at,
		},
		"2026-01-02T03:04:05Z a  token_required  9    http 1": {
			Resource: "a", Code: api.CodeTokenRequired, GrantedToken: 9, Source: "http", Count: 1, LastAt: at,
		},
		"2026-01-02T03:04:05Z a k version_mismatch 9     http 1": {
			Resource: "a", Key: "k", Code: api.CodeVersionMismatch, Token: new(int64(9)), GrantedToken: 9, Source: "http",
			Count: 1, LastAt: at,
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

// parseLine reads exactly one line that is exactly one document, of known fields.
func parseLine(t *testing.T, out string, document any) {
	t.Helper()
	if strings.Count(out, "\n") != 1 || !strings.HasSuffix(out, "\n") {
		t.Fatalf("%q is not one line", out)
	}
	decoder := json.NewDecoder(bytes.NewReader([]byte(out)))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(document); err != nil {
		t.Fatalf("%s: %v", out, err)
	}
}

func TestJSONIsTheAnswerOfTheAPI(t *testing.T) {
	s := newShell(t)
	t.Setenv("FENCEGATE_OUTPUT", "json")
	t.Setenv("FENCEGATE_OWNER_ID", "w<1>")

	var lease, renewed api.Lease
	parseLine(t, s.must("lock", "acquire", "a/b", "--ttl", "1h", "--metadata", `{"m": [1]}`), &lease)
	if lease.Lock != "a/b" || lease.OwnerID != "w<1>" || lease.FencingToken < 1 || lease.TTLMS != 3_600_000 ||
		lease.ExpiresAt.IsZero() {
		t.Errorf("acquire: %+v", lease)
	}
	token := fmt.Sprint(lease.FencingToken)
	parseLine(t, s.must("lock", "renew", "a/b", "--lease-id", lease.LeaseID, "--token", token), &renewed)
	if renewed.LeaseID != lease.LeaseID || renewed.ExpiresAt.Before(lease.ExpiresAt.Time) {
		t.Errorf("renew: %+v", renewed)
	}
	var lock api.Lock
	parseLine(t, s.must("lock", "get", "a/b"), &lock)
	if lock.State != "held" || len(lock.Holders) != 1 || string(lock.Holders[0].Metadata) != `{"m":[1]}` {
		t.Errorf("get: %+v", lock)
	}
	var written api.WriteResult
	parseLine(t, s.must("put", "a/b", "k", `[1, 2]`, "--token", token+".1"), &written)
	if written.Version < 1 || written.FencingToken != lease.FencingToken || *written.Sequence != 1 {
		t.Errorf("put: %+v", written)
	}
	var record recordDocument
	parseLine(t, s.must("get", "a/b", "k"), &record)
	if string(record.Value) != `[1,2]` || record.ValueBase64 != nil || record.FencingToken != lease.FencingToken ||
		*record.Sequence != 1 {
		t.Errorf("get: %+v", record)
	}
	s.must("put", "a/b", "k", "häh", "--token", token+".2")
	record = recordDocument{}
	parseLine(t, s.must("get", "a/b", "k"), &record)
	if record.Value != nil || *record.ValueBase64 != "aMOkaA==" {
		t.Errorf("get: %+v", record)
	}
	var deleted api.WriteResult
	parseLine(t, s.must("delete", "a/b", "k", "--token", token+".3"), &deleted)
	if deleted.Version <= written.Version {
		t.Errorf("delete: %+v", deleted)
	}
	var released api.Released
	parseLine(t, s.must("lock", "release", "a/b", "--lease-id", lease.LeaseID, "--token", token), &released)
	if !released.Released {
		t.Errorf("release: %+v", released)
	}
	s.must("lock", "acquire", "a/b")
	var broken api.Broken
	parseLine(t, s.must("lock", "break", "a/b", "--reason", "test"), &broken)
	if !broken.Broken || broken.OwnerID != "w<1>" || broken.FencingToken <= lease.FencingToken {
		t.Errorf("break: %+v", broken)
	}
}

func TestJSONErrorsAreProblems(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	s.must("lock", "acquire", "a", "--owner-id", "w1", "--ttl", "1h")
	for want, args := range map[api.Code][]string{
		api.CodeLockHeld:     {"lock", "acquire", "a"},
		api.CodeTokenUnknown: {"put", "a", "k", "v", "--token", "999"},
		api.CodeNotFound:     {"get", "a", "k"},
		api.CodeInvalidName:  {"get", "a", "../k"},
	} {
		got := s.do(append(args, "--output", "json")...)
		var problem api.Problem
		parseLine(t, got.errOut, &problem)
		if problem.Code != want || problem.Detail == "" || got.out != "" || got.code == exitOK {
			t.Errorf("%q exited with %d, %q, %+v, want %s", args, got.code, got.out, problem, want)
		}
		if want == api.CodeLockHeld && (problem.Holder == nil || problem.Holder.OwnerID != "w1" ||
			problem.RecommendedRetryMS == nil) {
			t.Errorf("%+v does not name the holder of the lock", problem)
		}
	}
}

// The formats of answers, before one gateway.
func TestOutputFormats(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	for name, test := range map[string]func(t *testing.T, s shell){
		"env in a shell": envOutputInAShell, "env of a session": envOutputOfASession,
		"env of the locks of others": envOutputOfOthersLocks, "yaml": yamlOutput, "url without scheme": urlWithoutScheme,
	} {
		t.Run(name, func(t *testing.T) { test(t, shell{t, s.url}) })
	}
}

// In a shell that evaluates the answer of an acquire, later commands need neither flags nor the name of the lock, and
// no name can run a command. The answer of the release ends that.
func envOutputInAShell(t *testing.T, s shell) {
	const lock, owner = `jobs/it's $(echo owned) "x"`, "a'b\\ $HOME `echo owned`"
	const script = `
		eval "$("$FENCEGATE" lock acquire "$1" --owner-id "$2" --metadata '{"k": "'\''"}' -o env)"
		"$FENCEGATE" put . state x --sequence 1 >/dev/null
		eval "$("$FENCEGATE" put . state y --sequence 2 -o env)"
		"$FENCEGATE" put . other z --sequence 3 >/dev/null
		"$FENCEGATE" lock renew >/dev/null
		echo "lock=$FENCEGATE_LOCK owner=$FENCEGATE_OWNER_ID value=$("$FENCEGATE" get . state)"
		echo "key=$FENCEGATE_ANSWER_KEY metadata=$FENCEGATE_ANSWER_METADATA"
		eval "$("$FENCEGATE" lock release -o env)"
		echo "after: ${FENCEGATE_LOCK-none} ${FENCEGATE_TOKEN-none} ${FENCEGATE_LEASE_ID-none} $FENCEGATE_ANSWER_RELEASED"`
	got := s.startCommand(strings.NewReader(""), exec.Command("sh", "-euc", script, "sh", lock, owner)).wants(0, "")
	const want = "lock=" + lock + " owner=" + owner + " value=y\nkey=state metadata={\"k\":\"'\"}\n" +
		"after: none none none true\n"
	if got.out != want || got.errOut != "" {
		t.Errorf("got  %q\nwant %q\n%s", got.out, want, got.errOut)
	}
	if state := fields(s.must("lock", "get", lock))["state"]; state != "free" {
		t.Errorf("afterwards the lock is %s", state)
	}
}

// The session of a shell is in its environment, too.
func envOutputOfASession(_ *testing.T, s shell) {
	s.startCommand(strings.NewReader(""), exec.Command("sh", "-euc", `
		eval "$("$FENCEGATE" session create --ttl 1h -o env)"
		"$FENCEGATE" lock acquire in-session
		test "$("$FENCEGATE" session get -o json | grep -c '"leases":1')" = 1
		eval "$("$FENCEGATE" session end -o env)"
		test "${FENCEGATE_SESSION_ID-none} $FENCEGATE_ANSWER_RELEASED" = "none 1"`)).wants(0, "")
}

// Only an answer that grants something sets the variables that later commands read.
func envOutputOfOthersLocks(t *testing.T, s shell) {
	s.must("lock", "acquire", "theirs", "--ttl", "1h")
	out := s.must("lock", "get", "theirs", "-o", "env")
	for line := range strings.Lines(out) {
		if !strings.HasPrefix(line, "export "+answerPrefix) {
			t.Errorf("the state of a lock sets %s", line)
		}
	}
	if !strings.Contains(out, "export FENCEGATE_ANSWER_LOCK='theirs'\n") {
		t.Errorf("got %s", out)
	}
}

// The YAML has the documents of the JSON, one after the other, and errors are problem documents in it, too.
func yamlOutput(t *testing.T, s shell) {
	s.must("lock", "acquire", "yaml/a", "--ttl", "1h")
	s.must("lock", "acquire", "yaml/b", "--ttl", "1h")
	var locks []string
	decoder := yaml.NewDecoder(strings.NewReader(s.must("lock", "ls", "--prefix", "yaml/", "-o", "yaml")))
	for {
		var lock struct{ Lock, State string }
		if err := decoder.Decode(&lock); err != nil {
			break
		}
		locks = append(locks, lock.Lock+" "+lock.State)
	}
	if got := strings.Join(locks, ", "); got != "yaml/a held, yaml/b held" {
		t.Errorf("the locks are %q", got)
	}
	got := s.do("get", "a", "missing", "-o", "yaml")
	var problem struct{ Code api.Code }
	if err := yaml.Unmarshal([]byte(got.errOut), &problem); err != nil || problem.Code != api.CodeNotFound || got.out != "" ||
		!strings.Contains(got.errOut, "\ncode: not_found\n") {
		t.Errorf("got %+v, %v", got, err)
	}
}

// An address without a scheme is that of a gateway.
func urlWithoutScheme(t *testing.T, s shell) {
	address := strings.TrimPrefix(s.url, "http://")
	s.must("health", "--url", address)
	s.must("lock", "ls", "--url", "127.0.0.1:1,"+address)
	for given, want := range map[string]string{
		"a:1": "http://a:1", "[::1]:80": "http://[::1]:80", "https://a": "https://a", "a": "a", "a:b": "a:b", "a:1/x": "a:1/x", "a:": "a:",
	} {
		if got := (connectionFlags{}).withScheme(given); got != want {
			t.Errorf("%s is read as %s, want %s", given, got, want)
		}
	}
	if got := (connectionFlags{CACert: "ca.pem"}).withScheme("a:1"); got != "https://a:1" {
		t.Errorf("with an authority, a:1 is read as %s", got)
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
