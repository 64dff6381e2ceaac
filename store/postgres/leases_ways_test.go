package postgres_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/fencegate/fencegate/store"
)

// leaseWay is one way to acquire and release. First come the functions that decide what concerns nobody else. What they
// leave is sent to the function that decides everything.
type leaseWay struct {
	name             string
	acquire, release string // "": everything is sent to that function
	together         bool   // all requests of a step are in one call
	handOver         bool   // by fence.hand_over, not by fence.release_lease and fence.grant_next
}

var leaseWays = []leaseWay{
	{name: "full"},
	{"one", "fence.acquire_one(($1::text[])[1], ($2::text[])[1], ($3::text[])[1], ($4::text[])[1], ($5::integer[])[1], " +
		"($6::text[])[1], ($7::text[])[1])",
		"fence.release_one(($1::text[])[1], ($2::text[])[1], ($3::uuid[])[1], ($4::bigint[])[1])", false, true},
	{"set", "fence.acquire_leases($1, $2, $3, $4, $5, $6, $7)", "fence.release_leases($1, $2, $3, $4)", true, true},
}

// TestWaysOfLeasesAgree takes random steps with the locks of several worlds. The worlds differ only in the functions by
// which they acquire and release: all answers, and all rows at the end, must be the same.
func TestWaysOfLeasesAgree(t *testing.T) {
	t.Parallel()
	b := newTestbed(t)
	b.Exec(t, "insert into fence.gateways (gateway_id, alive_until) select g::uuid, now() + interval '1 hour' "+
		"from unnest($1::text[]) g", waysGateways)
	runs, decided := 0, map[string]int{}
	rapid.Check(t, func(t *rapid.T) {
		runs++
		w := &waysRun{bed: b, run: fmt.Sprintf("run-%d", runs), decided: decided}
		for _, table := range []string{"policies", "subtrees", "waiters", "watched"} {
			w.exec(t, "delete from fence."+table)
		}
		for _, way := range leaseWays {
			for _, name := range waysNames {
				w.exec(t, "insert into fence.fences (resource, last_token) values ($1, 1)", w.name(way, name))
			}
		}
		for range rapid.IntRange(5, 25).Draw(t, "steps") {
			rapid.SampledFrom(waysSteps).Draw(t, "step")(w, t)
		}
		w.compare(t)
	})
	for _, way := range leaseWays[1:] {
		t.Logf("%s: %d acquires and %d releases were decided", way.name, decided[way.acquire], decided[way.release])
		if decided[way.acquire] < runs || decided[way.release] < runs/2 {
			t.Errorf("%s decided too few: this test compares nothing", way.name)
		}
	}
}

// waysGateways have the waiters.
var waysGateways = []string{"00000000-0000-4000-8000-000000000001", "00000000-0000-4000-8000-000000000002"}

// waysNames are the names of the locks of a world, below its own. Each takes its tree locks in another way.
var waysNames = []string{"", "/a", "/a/b", "/c/d/e"}

// waysSteps are the steps; those that happen more often are there several times.
var waysSteps = []func(*waysRun, *rapid.T){
	(*waysRun).acquire, (*waysRun).acquire, (*waysRun).acquire, (*waysRun).acquire, (*waysRun).acquire,
	(*waysRun).acquire, (*waysRun).release, (*waysRun).release, (*waysRun).release, (*waysRun).release,
	(*waysRun).release, (*waysRun).wait, (*waysRun).handOver, (*waysRun).handOver, (*waysRun).leave, (*waysRun).limit,
	(*waysRun).change, (*waysRun).change, (*waysRun).acquireInSession, (*waysRun).acquireSubtree,
}

// waysRun is one sequence of steps.
type waysRun struct {
	bed     *testbed
	run     string
	decided map[string]int
	leases  [][]store.LeaseRef // that were granted: of each grant, the lease of each world
}

// name is the name of a lock in a world.
func (w *waysRun) name(way leaseWay, name string) string { return way.name + "-" + w.run + name }

func (w *waysRun) exec(t *rapid.T, sql string, args ...any) {
	t.Helper()
	if _, err := w.bed.SQL.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// agree takes a step in every world, in any order, and compares the answers.
func (w *waysRun) agree(t *rapid.T, what string, step func(world int, way leaseWay) ([]string, error)) {
	t.Helper()
	first := rapid.IntRange(0, len(leaseWays)-1).Draw(t, "first world")
	answers := make([][]string, len(leaseWays))
	for i := range leaseWays {
		world := (first + i) % len(leaseWays)
		var err error
		if answers[world], err = step(world, leaseWays[world]); err != nil {
			t.Fatalf("%s by %s: %v", what, leaseWays[world].name, err)
		}
	}
	t.Logf("%s → %s", what, strings.Join(answers[0], "; "))
	for world, got := range answers {
		if !slices.Equal(got, answers[0]) {
			t.Fatalf("%s is answered\n%s by %s, and\n%s by %s", what, strings.Join(answers[0], "\n"), leaseWays[0].name,
				strings.Join(got, "\n"), leaseWays[world].name)
		}
	}
}

// distinctNames draws one to three locks.
func (w *waysRun) distinctNames(t *rapid.T) []string {
	return rapid.SliceOfNDistinct(rapid.SampledFrom(waysNames), 1, 3, rapid.ID[string]).Draw(t, "locks")
}

// waysRequest is an acquire.
type waysRequest struct {
	name, owner, principal, mode, scope string
	ttl, waitMS                         int
	requestID, metadata, gateway        *string
	session                             uuid.UUID
}

func (r waysRequest) String() string {
	encoded, _ := json.Marshal([]any{r.name, r.owner, r.principal, r.mode, r.scope, r.ttl, r.requestID, r.metadata, r.waitMS})
	return string(encoded)
}

// drawRequest draws a try for a name alone, in no session.
func drawRequest(t *rapid.T, name string) waysRequest {
	text := func(of ...string) string { return rapid.SampledFrom(of).Draw(t, "text") }
	optional := func(of ...string) *string {
		if drawn := text(append(of, "", "")...); drawn != "" {
			return &drawn
		}
		return nil
	}
	return waysRequest{
		name: name, scope: "node", owner: text("A", "B", "P/x"), principal: text("", "P"), mode: text("exclusive", "exclusive", "shared"),
		ttl:       rapid.SampledFrom([]int{3_600_000, 7_200_000}).Draw(t, "ttl"),
		requestID: optional("r1", "r2"), metadata: optional(`{"value": "v"}`, `{"a": 1}`),
	}
}

func (w *waysRun) acquire(t *rapid.T) {
	var requests []waysRequest
	for _, name := range w.distinctNames(t) {
		requests = append(requests, drawRequest(t, name))
	}
	granted := make([][]store.LeaseRef, len(requests))
	for i := range granted {
		granted[i] = make([]store.LeaseRef, len(leaseWays))
	}
	w.agree(t, fmt.Sprintf("acquire %v", requests), func(world int, way leaseWay) (answers []string, err error) {
		refs, err := w.decideAcquires(t.Context(), way, requests)
		for i, request := range requests {
			if err != nil {
				break
			}
			answer := "granted"
			if _, ok := refs[request.name]; !ok {
				answer, refs[request.name], err = w.acquireFully(t.Context(), way, request)
			}
			granted[i][world] = refs[request.name]
			answers = append(answers, answer)
		}
		return answers, err
	})
	w.note(granted...)
}

// note keeps the leases of each grant, if there are any.
func (w *waysRun) note(granted ...[]store.LeaseRef) {
	for _, leases := range granted {
		if leases[0].Token > 0 {
			w.leases = append(w.leases, leases)
		}
	}
}

// drawLeases draws some leases of different locks, at times the first of them with a mistake; nil if there is none.
func (w *waysRun) drawLeases(t *rapid.T, most int) (leases [][]store.LeaseRef) {
	if len(w.leases) == 0 {
		return nil
	}
	for range rapid.IntRange(1, most).Draw(t, "leases") {
		back := rapid.IntRange(0, min(len(w.leases)-1, 6)).Draw(t, "back")
		drawn := slices.Clone(w.leases[len(w.leases)-1-back])
		if !slices.ContainsFunc(leases, func(other []store.LeaseRef) bool { return other[0].Lock == drawn[0].Lock }) {
			leases = append(leases, drawn)
		}
	}
	mistake := rapid.SampledFrom([]string{"none", "none", "none", "none", "owner", "id", "token"}).Draw(t, "mistake")
	for world := range leases[0] {
		switch ref := &leases[0][world]; mistake {
		case "owner":
			ref.OwnerID = "somebody"
		case "id":
			ref.ID = uuid.New()
		case "token":
			ref.Token = 1 // was granted in no world
		}
	}
	return leases
}

func (w *waysRun) release(t *rapid.T) {
	leases := w.drawLeases(t, 3)
	if leases == nil {
		return
	}
	w.agree(t, fmt.Sprintf("release %v", leases), func(world int, way leaseWay) (answers []string, err error) {
		refs := make([]store.LeaseRef, len(leases))
		for i := range leases {
			refs[i] = leases[i][world]
		}
		decided, err := w.decideReleases(t.Context(), way, refs)
		for _, ref := range refs {
			if err != nil {
				break
			}
			answer, ok := decided[ref.Lock]
			if !ok {
				const sql = "select concat_ws(' ', status, mode, round(age_ms / 3600000)) from fence.release_lease($1, $2, $3, $4)"
				err = w.bed.SQL.QueryRow(t.Context(), sql, argsOf(ref)...).Scan(&answer)
			}
			answers = append(answers, answer)
		}
		return answers, err
	})
}

func (w *waysRun) wait(t *rapid.T) {
	request := drawRequest(t, rapid.SampledFrom(waysNames).Draw(t, "lock"))
	w.queue(t, request, rapid.SampledFrom(waysGateways).Draw(t, "gateway"))
}

// queue puts a request into the queue, if the lock is not free.
func (w *waysRun) queue(t *rapid.T, request waysRequest, gateway string) {
	request.waitMS, request.gateway = 600_000, &gateway
	w.acquireEverywhere(t, request, nil)
	// No wait is so short that it is rounded to none.
	w.exec(t, "update fence.waiters set queued_at = queued_at - interval '1 second'")
}

// handOver releases a lease and grants its lock to the waiters of a gateway. Mostly there is one.
func (w *waysRun) handOver(t *rapid.T) {
	leases := w.drawLeases(t, 1)
	if leases == nil {
		return
	}
	lease := leases[0]
	gateway := rapid.SampledFrom(waysGateways).Draw(t, "gateway")
	if rapid.IntRange(0, 3).Draw(t, "another waits") > 0 {
		w.queue(t, drawRequest(t, strings.TrimPrefix(string(lease[0].Lock), w.name(leaseWays[0], ""))), gateway)
	}
	granted := make([][]store.LeaseRef, len(leaseWays))
	w.agree(t, fmt.Sprintf("hand over %v", lease), func(world int, way leaseWay) (answers []string, err error) {
		answers, granted[world], err = w.handOverBy(t.Context(), way, lease[world], gateway)
		return answers, err
	})
	for i := range granted[0] {
		leases := make([]store.LeaseRef, len(leaseWays))
		for world := range leases {
			leases[world] = granted[world][i]
		}
		w.note(leases)
	}
}

// leave takes all waiters for a lock out of its queue.
func (w *waysRun) leave(t *rapid.T) {
	name := rapid.SampledFrom(waysNames).Draw(t, "lock")
	for _, way := range leaseWays {
		w.exec(t, "select fence.leave(g::uuid, array(select ticket from fence.waiters where lock = $1)) "+
			"from unnest($2::text[]) g", w.name(way, name), waysGateways)
	}
}

// acquireSubtree is rare: from then on, all is left to the functions for sets of leases.
func (w *waysRun) acquireSubtree(t *rapid.T) {
	if rapid.IntRange(0, 3).Draw(t, "not now") > 0 {
		return
	}
	request := drawRequest(t, rapid.SampledFrom(waysNames).Draw(t, "lock"))
	request.scope = "subtree"
	w.acquireEverywhere(t, request, nil)
}

// acquireInSession acquires in a session, which ends at times.
func (w *waysRun) acquireInSession(t *rapid.T) {
	request := drawRequest(t, rapid.SampledFrom(waysNames).Draw(t, "lock"))
	sessions := make([]uuid.UUID, len(leaseWays))
	for world := range sessions {
		session, err := w.bed.CreateSession(t.Context(), store.SessionRequest{OwnerID: request.owner, TTL: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		sessions[world] = session.ID
	}
	w.acquireEverywhere(t, request, sessions)
	if rapid.Bool().Draw(t, "the sessions end") {
		for _, session := range sessions {
			if _, err := w.bed.EndSession(t.Context(), session); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// acquireEverywhere sends a request to the function that decides everything, in the session of each world, if any.
func (w *waysRun) acquireEverywhere(t *rapid.T, request waysRequest, sessions []uuid.UUID) {
	granted := make([]store.LeaseRef, len(leaseWays))
	w.agree(t, fmt.Sprintf("acquire %v", request), func(world int, way leaseWay) (answers []string, err error) {
		if sessions != nil {
			request.session = sessions[world]
		}
		answers = make([]string, 1)
		answers[0], granted[world], err = w.acquireFully(t.Context(), way, request)
		return answers, err
	})
	w.note(granted)
}

// limit acquires under a policy that limits the hold, and deletes it.
func (w *waysRun) limit(t *rapid.T) {
	request := drawRequest(t, rapid.SampledFrom(waysNames).Draw(t, "lock"))
	for _, way := range leaseWays {
		w.exec(t, "insert into fence.policies (prefix, max_hold_ms) values ($1, 1800000) on conflict do nothing",
			w.name(way, request.name))
	}
	w.acquireEverywhere(t, request, nil)
	w.exec(t, "delete from fence.policies")
}

// change changes something else in every world: $1 is its prefix, $2 one of its locks.
func (w *waysRun) change(t *rapid.T) {
	name := rapid.SampledFrom(waysNames).Draw(t, "lock")
	sql := rapid.SampledFrom([]string{
		"update fence.leases set granted_at = granted_at - interval '1 day', check_at = '-infinity', " +
			"expires_at = clock_timestamp() - interval '1 millisecond' where lock = $1 and ended_at is null " +
			"and session_id is null and fencing_token = (select max(fencing_token) from fence.leases where lock = $1)",
		"update fence.fences set last_token = granted_token + 1000 where resource = $1",
		"select fence.begin_watch(array[$1], 3600000)",
		"delete from fence.watched where lock = $1",
		"delete from fence.policies where $1::text <> ''", // all
		"insert into fence.policies (prefix, max_hold_ms) values ($1, 1800000) on conflict do nothing",
		"insert into fence.policies (prefix, require_principal_owner) values ($1, true) on conflict do nothing",
		"insert into fence.policies (prefix, authority) values ($1, 'external') on conflict do nothing",
		"delete from fence.policies where prefix = $1",
		"select fence.break($1, 'a test')",
		"select fence.sweep_leases(100000) where $1::text <> ''",
		"select fence.sweep_ended(100000, '0') where $1::text <> ''",
		"update fence.database_identity set started_at = null where $1::text <> ''", // tokens jump
	}).Draw(t, "change")
	t.Logf("%s: %s", name, sql)
	for _, way := range leaseWays {
		w.exec(t, sql, w.name(way, name))
	}
}

// compare compares the rows of the worlds.
func (w *waysRun) compare(t *rapid.T) {
	t.Helper()
	var want []string
	for _, way := range leaseWays {
		var rows []string
		if err := w.bed.SQL.QueryRow(t.Context(), waysRows, w.name(way, "")).Scan(&rows); err != nil {
			t.Fatal(err)
		}
		if way.acquire == "" {
			want = rows
		} else if !slices.Equal(rows, want) {
			missing := without(want, rows)
			t.Fatalf("the rows by %s differ: they have\n%s\nand by %s\n%s", way.name, strings.Join(without(rows, want), "\n"),
				leaseWays[0].name, strings.Join(missing, "\n"))
		}
	}
}

// without returns the lines that others do not have.
func without(lines, others []string) []string {
	return slices.DeleteFunc(slices.Clone(lines), func(line string) bool { return slices.Contains(others, line) })
}
