package store_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/jackc/pgx/v5"

	"github.com/fencegate/fencegate/internal/pgtest"
	"github.com/fencegate/fencegate/store"
)

// TestScenarios plays the groups of testdata/scenarios, each in a database of its own: what is told there below a command is what must
// come out. `go test ./store -run TestScenarios -rewrite` writes down what comes out.
//
// A, B, … are sessions of the database, each of which does one thing at a time and nothing more while it waits for another:
//
//	A: acquire LOCK [shared] [subtree] [in=SESSION] [owner=NAME] [request=ID] [ttl_ms=N]
//	A: renew LOCK [token=T] [lease=SESSION] [owner=NAME] [ttl_ms=N]
//	A: release LOCK [token=T] [lease=SESSION] [owner=NAME]    A: begin, A: commit, A: rollback
//	A: break LOCK                                             A: sweep; A: sql, with a statement below
//	A: open-session, A: keep-alive, A: end-session, A: settle
//	A: write RESOURCE token=T [seq=N] [lease=SESSION] [if=VERSION|none|any] put KEY=VALUE | delete KEY
//	A: set, A: transact, with lines below: RESOURCE token=T … as above
//
// T is a number, none, or a session: the newest token that it was granted on the name (A@OTHER: on another name). A command that ends with & is one that waits
// for another session; when that ends its transaction, what comes out is told there. The director's commands:
//
//	freeze A    from now on what A does is not sent      thaw A    now it is, all of it
//	expire LOCK    its leases run out now                run-out LOCK    wait until they have by themselves
//	expire-session A    so does what A opened            policy PREFIX [same_token] [external] [require_lease_id] [require_live_lease]
//	fence, leases, records RESOURCE; rejections          another-database    this is not the database that minted last
//
// Tokens beyond 2^32 can't be told beforehand. They are shown as L1, L2, … in the order of their values.
func TestScenarios(t *testing.T) {
	datadriven.Walk(t, "testdata/scenarios", func(t *testing.T, path string) {
		s := newScene(t)
		datadriven.RunTest(t, path, func(t *testing.T, command *datadriven.TestData) string {
			return s.play(t, command)
		})
	})
}

// scenePatience bounds the wait for sessions that neither come to an end nor wait for each other.
const scenePatience = time.Minute

// scene is one group being played.
type scene struct {
	url      string
	director *pgx.Conn // not one of the sessions
	store    *store.Store
	recorder *store.Recorder
	actors   map[string]*actor
	jumped   []int64 // the tokens beyond 2^32 that were seen
}

func newScene(t *testing.T) *scene {
	url := pgtest.Migrated(t)
	opened := openStore(t, store.Config{DatabaseURL: url})
	s := &scene{url: url, store: opened, recorder: store.NewRecorder(opened), actors: map[string]*actor{}}
	s.director = s.connect(t)
	t.Cleanup(s.end)
	return s
}

func (s *scene) connect(t *testing.T) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), s.url)
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

// end closes all sessions. Those that wait are cut off first, the others can't be waiting then.
func (s *scene) end() {
	ctx, cancel := context.WithTimeout(context.Background(), scenePatience)
	defer cancel()
	for _, actor := range s.actors {
		actor.leave(ctx)
	}
	_ = s.director.Close(ctx)
}

// play does one command and returns what came out of it, for whoever that is.
func (s *scene) play(t *testing.T, command *datadriven.TestData) string {
	var words []string
	for _, arg := range command.CmdArgs {
		words = append(words, arg.String())
	}
	name, isActor := strings.CutSuffix(command.Cmd, ":")
	if !isActor {
		return s.direct(t, command.Cmd, words)
	}
	a := s.actor(t, name)
	script := actorScript{words: words, lines: strings.Split(command.Input, "\n")}
	if last := len(words) - 1; words[last] == "&" {
		script.words, script.mayWait = words[:last], true
	}
	if a.frozen {
		a.unsent = append(a.unsent, script)
		return name + ": frozen"
	}
	return s.perform(t, a, script)
}

func (s *scene) perform(t *testing.T, a *actor, script actorScript) string {
	if a.doing != nil {
		t.Fatalf("%s is still waiting", a.name)
	}
	act, err := s.understand(a, script)
	if err != nil {
		t.Fatal(err)
	}
	a.start(t.Context(), act)
	lines := s.settle(t)
	if a.doing != nil && !script.mayWait {
		t.Fatalf("%s waits: %s", a.name, lines)
	}
	return strings.Join(lines, "\n")
}

// settle waits until every session has come to an end or waits for another one, and tells what is new.
func (s *scene) settle(t *testing.T) []string {
	var lines []string
	before := map[string]string{}
	for name, a := range s.actors {
		before[name] = a.waitsFor
	}
	for end := time.Now().Add(scenePatience); ; time.Sleep(time.Millisecond) {
		done, quiet := s.look(t)
		lines = append(lines, done...)
		if quiet {
			break
		}
		if time.Now().After(end) {
			t.Fatal("a session neither ends nor waits")
		}
	}
	for _, name := range s.names() {
		if a := s.actors[name]; a.doing != nil && a.waitsFor != before[name] {
			lines = append(lines, fmt.Sprintf("%s: blocked by %s", name, a.waitsFor))
		}
	}
	slices.Sort(lines)
	return lines
}

// look goes round once. It is quiet if nothing has changed and everybody who does something waits.
func (s *scene) look(t *testing.T) (done []string, quiet bool) {
	quiet = true
	for _, name := range s.names() {
		a := s.actors[name]
		if a.doing == nil {
			continue
		}
		select {
		case told := <-a.doing:
			a.doing, a.waitsFor = nil, ""
			for _, line := range strings.Split(told(), "\n") {
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
func (s *scene) waitsFor(t *testing.T, a *actor) string {
	var blocking []uint32
	err := s.director.QueryRow(t.Context(), "select pg_blocking_pids($1)::bigint[]", a.pid).Scan(&blocking)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, name := range s.names() {
		if slices.Contains(blocking, s.actors[name].pid) {
			names = append(names, name)
		}
	}
	return strings.Join(names, ", ")
}

func (s *scene) names() []string {
	names := make([]string, 0, len(s.actors))
	for name := range s.actors {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// token shows a token.
func (s *scene) token(token int64) string {
	if token < 1<<32 {
		return fmt.Sprint(token)
	}
	if !slices.Contains(s.jumped, token) {
		s.jumped = append(s.jumped, token)
		slices.Sort(s.jumped)
	}
	return fmt.Sprintf("L%d", slices.Index(s.jumped, token)+1)
}
