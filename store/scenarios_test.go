package store_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/jackc/pgx/v5"

	"github.com/fencegate/fencegate/internal/testenv/postgres"
	"github.com/fencegate/fencegate/store"
)

// TestScenarios runs the scenarios of testdata/scenarios, each in a database of its own: a command must have the result
// that is written below it. `go test ./store -run TestScenarios -rewrite` writes the results down.
//
// A, B, … are sessions of the database, each of which does one thing at a time and nothing more while it waits for
// another:
//
//	A: acquire LOCK [shared] [subtree] [in=SESSION] [owner=NAME] [request=ID] [ttl_ms=N]
//	A: renew LOCK [of=SESSION] [ttl_ms=N]                     A: begin, A: commit, A: rollback
//	A: release LOCK [of=SESSION]                              A: open-session, A: keep-alive, A: end-session
//	A: break LOCK                                             A: sweep; A: sql, with a statement below
//	A: write RESOURCE token=T [seq=N] [if=VERSION|any] put KEY=VALUE
//	A: set, A: transact, with lines below: RESOURCE token=T … as above
//
// T is a number or a session: the newest token that it was granted on the name (A@OTHER: on another name). A
// command that ends with & waits for another session; its result is written below the command that ends the wait.
// Commands without a session:
//
//	expire LOCK    its leases run out now     policy PREFIX [external] [require_live_lease] [hold_an_hour]
//	fence, leases, records RESOURCE           sql, with a statement below
//
// Tokens beyond 2^32 are not known beforehand. They are shown as L1, L2, … in the order of their values.
func TestScenarios(t *testing.T) {
	datadriven.Walk(t, "testdata/scenarios", func(t *testing.T, path string) {
		t.Parallel()
		s := newScenario(t)
		datadriven.RunTest(t, path, func(t *testing.T, command *datadriven.TestData) string {
			return s.run(t, command)
		})
	})
}

// scenarioPatience bounds the wait for sessions that neither end their commands nor wait for each other.
const scenarioPatience = time.Minute

// scenario is one file that is being run.
type scenario struct {
	url      string
	admin    *pgx.Conn // not one of the sessions
	store    *store.Store
	sessions map[string]*scenarioSession
	jumped   []int64 // the tokens beyond 2^32 that were seen
}

func newScenario(t *testing.T) *scenario {
	url := postgres.Migrated(t)
	opened := openStore(t, store.Config{DatabaseURL: url})
	s := &scenario{url: url, store: opened, sessions: map[string]*scenarioSession{}}
	s.admin = s.connect(t)
	t.Cleanup(s.end)
	return s
}

func (s *scenario) connect(t *testing.T) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), s.url)
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

// end closes all sessions. Those that wait are cut off first, the others can't be waiting then.
func (s *scenario) end() {
	ctx, cancel := context.WithTimeout(context.Background(), scenarioPatience)
	defer cancel()
	for _, session := range s.sessions {
		session.leave(ctx)
	}
	_ = s.admin.Close(ctx)
}

// run runs one command and returns the results of all sessions that it led to.
func (s *scenario) run(t *testing.T, command *datadriven.TestData) string {
	var words []string
	for _, arg := range command.CmdArgs {
		words = append(words, arg.String())
	}
	name, isSession := strings.CutSuffix(command.Cmd, ":")
	if !isSession {
		return s.administer(t, command, words)
	}
	a := s.sessionCalled(t, name)
	if a.doing != nil {
		t.Fatalf("%s is still waiting", a.name)
	}
	mayWait := words[len(words)-1] == "&"
	if mayWait {
		words = words[:len(words)-1]
	}
	action, err := s.parse(a, words, command.Input)
	if err != nil {
		t.Fatal(err)
	}
	a.start(t.Context(), action)
	lines := s.settle(t)
	if a.doing != nil && !mayWait {
		t.Fatalf("%s waits: %s", a.name, lines)
	}
	return strings.Join(lines, "\n")
}

// settle waits until every session has ended its command or waits for another one, and returns the new results.
func (s *scenario) settle(t *testing.T) []string {
	var lines []string
	before := map[string]string{}
	for name, a := range s.sessions {
		before[name] = a.waitsFor
	}
	for end := time.Now().Add(scenarioPatience); ; time.Sleep(time.Millisecond) {
		done, quiet := s.look(t)
		lines = append(lines, done...)
		if quiet {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("within %s a session neither ended its command nor waited for another", scenarioPatience)
		}
	}
	for _, name := range s.names() {
		if a := s.sessions[name]; a.doing != nil && a.waitsFor != before[name] {
			lines = append(lines, fmt.Sprintf("%s: blocked by %s", name, a.waitsFor))
		}
	}
	slices.Sort(lines)
	return lines
}

// look checks each session once. The scenario is quiet if nothing has changed and every session that is busy waits.
func (s *scenario) look(t *testing.T) (done []string, quiet bool) {
	quiet = true
	for _, name := range s.names() {
		a := s.sessions[name]
		if a.doing == nil {
			continue
		}
		select {
		case result := <-a.doing:
			a.doing, a.waitsFor = nil, ""
			for line := range strings.SplitSeq(result(), "\n") {
				done = append(done, name+": "+line)
			}
			quiet = false
		default:
			waitsFor := s.waitsFor(t, a)
			quiet = quiet && waitsFor != "" && waitsFor == a.waitsFor
			a.waitsFor = waitsFor
		}
	}
	return done, quiet
}

// waitsFor names the sessions that hold, or will get before it, what the session waits for.
func (s *scenario) waitsFor(t *testing.T, a *scenarioSession) string {
	var blocking []uint32
	err := s.admin.QueryRow(t.Context(), "select pg_blocking_pids($1)::bigint[]", a.pid).Scan(&blocking)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, name := range s.names() {
		if slices.Contains(blocking, s.sessions[name].pid) {
			names = append(names, name)
		}
	}
	return strings.Join(names, ", ")
}

func (s *scenario) names() []string { return slices.Sorted(maps.Keys(s.sessions)) }

// token shows a token.
func (s *scenario) token(token int64) string {
	if token < 1<<32 {
		return fmt.Sprint(token)
	}
	if !slices.Contains(s.jumped, token) {
		s.jumped = append(s.jumped, token)
		slices.Sort(s.jumped)
	}
	return fmt.Sprintf("L%d", slices.Index(s.jumped, token)+1)
}
