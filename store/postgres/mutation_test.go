package postgres_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencegate/fencegate/migrations"
)

// mutation is a function of the schema, broken on purpose, and the cases that must notice.
type mutation struct {
	name     string
	function string // fence.<function>
	edit     edit
	fails    []string // cases that pass on the function as it is, and each of which must fail on the broken one
}

// edit returns the broken source, or an error where there is nothing left to break.
type edit func(source string) (string, error)

// TestEveryStepIsTested breaks the functions, one place at a time, and checks that the cases fail. A step of the rule
// that could be removed without a failing test would be a step that nobody keeps.
func TestEveryStepIsTested(t *testing.T) {
	t.Parallel()
	cases := map[string]storeCase{}
	for _, c := range allCases() {
		if _, twice := cases[c.name]; twice {
			t.Fatalf("two cases are called %q", c.name)
		}
		cases[c.name] = c
	}
	// Few databases for many mutations: to make one costs as much as several cases.
	beds := make(chan *testbed, 4)
	for range cap(beds) {
		beds <- newTestbed(t)
	}
	for _, m := range allMutations() {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			b := <-beds
			defer func() { beds <- b }()
			b.forget(t)
			m.apply(t, b)
			// It is broken in one place: a holder can still write by one of the sources.
			if err := cases["step 1: a token"].check(ctx, b); err != nil && cases["transaction: all is applied"].check(ctx,
				b) != nil {
				t.Fatalf("the function is broken altogether: %v", err)
			}
			for _, name := range m.fails {
				c, ok := cases[name]
				if !ok {
					t.Fatalf("there is no case %q", name)
				}
				if err := c.check(ctx, b); err == nil {
					t.Errorf("the case %q did not notice", name)
				}
			}
			b.forget(t)
			m.undo(t, b)
			for _, name := range m.fails {
				if err := cases[name].check(ctx, b); err != nil {
					t.Errorf("the case %q fails on the function as it is: %v", name, err)
				}
			}
		})
	}
}

func allMutations() (mutations []mutation) {
	lists := mutationLists()
	for _, name := range slices.Sorted(maps.Keys(lists)) {
		mutations = append(mutations, lists[name]...)
	}
	return mutations
}

func mutationLists() map[string][]mutation {
	return map[string][]mutation{
		"step": stepMutations, "rule": ruleMutations, "fastPath": fastPathMutations, "chain": chainMutations,
		"change": changeMutations, "lease": leaseMutations, "scope": scopeMutations, "session": sessionMutations,
		"hold": holdMutations, "together": togetherMutations, "one": oneMutations, "pass": passMutations,
		"rolledBack": rolledBackMutations,
	}
}

func allCases() []storeCase {
	cases := slices.Clone(waitingCases)
	for _, c := range ruleCases() {
		cases = append(cases, c.by(bySet), c.alone().by(byOne))
	}
	for _, group := range caseGroups() {
		cases = append(cases, group...)
	}
	return cases
}

func (m mutation) apply(t *testing.T, b *testbed) {
	t.Helper()
	b.Exec(t, m.broken(t))
	if slices.Contains([]string{"admit", "lock_write_tokens", "apply_operations", "raise_fences", "write_ruled"}, m.function) {
		b.Exec(t, theLongWay(t))
	}
}

// broken returns the broken function.
func (m mutation) broken(t *testing.T) string {
	t.Helper()
	source, ok := migrations.GuardSource(m.function)
	if !ok {
		t.Fatalf("there is no fence.%s", m.function)
	}
	broken, err := m.edit(source)
	if err != nil {
		t.Fatalf("fence.%s: %v", m.function, err)
	}
	return broken
}

// undo restores what apply broke.
func (m mutation) undo(t *testing.T, b *testbed) {
	t.Helper()
	for _, function := range []string{m.function, "write"} {
		source, _ := migrations.GuardSource(function)
		b.Exec(t, source)
	}
}

// theLongWay is fence.write without the fast path, on which most writes never come to what is broken.
func theLongWay(t *testing.T) string {
	t.Helper()
	source, _ := migrations.GuardSource("write")
	long, err := replacing("where c.kind = 'put'", "where false and c.kind = 'put'")(source)
	if err != nil {
		t.Fatal(err)
	}
	return long
}

// replacing replaces the one place where a text occurs.
func replacing(old, replacement string) edit {
	return func(source string) (string, error) {
		if count := strings.Count(source, old); count != 1 {
			return "", fmt.Errorf("%q is there %d times, want once", old, count)
		}
		return strings.Replace(source, old, replacement, 1), nil
	}
}

func removing(old string) edit { return replacing(old, "") }

// both makes two edits.
func both(one, two edit) edit {
	return func(source string) (string, error) {
		source, err := one(source)
		if err != nil {
			return "", err
		}
		return two(source)
	}
}

// withoutStep takes a branch of a step of the rule out: the lines from "when" to the "then" that is marked with the
// step.
func withoutStep(step, branch int) edit {
	return func(source string) (string, error) {
		lines := strings.Split(source, "\n")
		mark, seen := fmt.Sprintf("-- step %d", step), 0
		for end, line := range lines {
			if !strings.HasSuffix(line, mark) {
				continue
			}
			if seen++; seen < branch {
				continue
			}
			begin := end
			for indent(lines[begin]) >= indent(line) {
				begin--
			}
			if !strings.HasPrefix(strings.TrimSpace(lines[begin]), "when ") {
				return "", fmt.Errorf("the branch of step %d begins with %q", step, lines[begin])
			}
			return strings.Join(slices.Delete(lines, begin, end+1), "\n"), nil
		}
		return "", fmt.Errorf("step %d has %d branches, want %d", step, seen, branch)
	}
}

func indent(line string) int { return len(line) - len(strings.TrimLeft(line, " ")) }

// TestEveryStepIsMarked checks that each branch that is marked as a step has a mutation.
func TestEveryStepIsMarked(t *testing.T) {
	t.Parallel()
	marks := 0
	for _, function := range []string{"rule", "admit", "apply_operations"} {
		source, _ := migrations.GuardSource(function)
		marks += strings.Count(source, "-- step ")
	}
	if marks != len(stepMutations) {
		t.Errorf("the functions have %d branches that are marked as steps, the mutations are %d", marks, len(stepMutations))
	}
}

// scopeMutations break shared and subtree leases.
var scopeMutations = []mutation{
	{"a grant of a subtree looks once at the fences below", "lock_subtree", replacing("perform fence.lock_below(p_name, null)", "null"),
		[]string{"P3: a subtree is granted during a write that adopts the token of a subtree below"}},
	{"an acquire of a subtree looks twice for the lease in its way", "acquire_lease",
		replacing("v_blocker := fence.lock_subtree(", "perform fence.lock_subtree("),
		[]string{"P13: an acquire of a subtree waits for the lease that ran when all was locked"}},
	{"a waiter for a subtree is granted it after a second look for the lease in its way", "grant_waiters",
		replacing("case v_waiter.scope when 'subtree' then p_blocker end", "null"),
		[]string{"P13: a waiter for a subtree waits for the lease that ran when all was locked"}},
	{"a shared grant opens the fence", "grant_lease", replacing("open = v_lease.mode = 'exclusive',", "open = true,"),
		[]string{"shared: its token can't write", "shared: nor beside others"}},
	{"a shared grant leaves the fence as it is", "grant_lease",
		both(replacing("set granted_token = v_lease.fencing_token,",
			"set granted_token = case v_lease.mode when 'shared' then f.granted_token else v_lease.fencing_token end,"),
			replacing("open = v_lease.mode = 'exclusive',", "open = f.open or v_lease.mode = 'exclusive',")),
		[]string{"shared: a writer that is replaced by a reader"}},
	{"the reason of a reader is released", "admit", replacing("l.mode = 'shared'), 'released')", "false), 'released')"),
		[]string{"shared: its token can't write", "scope: below, as a reader of the subtree"}},
	{"readers exclude each other", "conflicting_leases",
		replacing("case when l.mode = 'shared' then l.fencing_token else 0 end = 0", "true"),
		[]string{"P1: readers beside readers"}},
	{"readers are not seen by writers", "conflicting_leases", replacing("p_mode = 'exclusive' and", "false and"),
		[]string{"P1: no writer beside a reader", "P1: no writer beside the readers that are left"}},
	{"the lease that runs shortest is reported", "longest_running",
		replacing("v_lease.expires_at > greatest(clock_timestamp(), v_longest.expires_at)",
			"v_lease.expires_at > clock_timestamp() and (v_longest.lock is null or v_lease.expires_at < v_longest.expires_at)"),
		[]string{"P1: of two in the way, the one that runs longer"}},
	{"a break ends the newest alone", "break",
		replacing("l.ended_at is null and l.expires_at > clock_timestamp()\n                or ", ""),
		[]string{"a break ends all readers"}},
	{"a break ends what has expired", "break", replacing("l.ended_at is null and l.expires_at > clock_timestamp()\n", "l.ended_at is null\n"),
		[]string{"a break ends all readers"}},

	{"a subtree grant does not raise what is below", "grant_lease",
		replacing("case v_lease.scope when 'subtree' then v_lease.fencing_token else f.subtree_token end", "f.subtree_token"),
		[]string{"subtree: step 1: a token", "scope: far below", "scope: a name below, before the subtree, to share"}},
	{"a grant of the name leaves what is below open", "grant_lease",
		replacing("elsif p_fence.open and p_fence.subtree_token", "elsif false and p_fence.subtree_token"),
		[]string{"scope: below, written before a grant of the name alone"}},
	{"a release leaves what is below open", "close_fence", replacing("if v_subtree then", "if false then"),
		[]string{"scope: below, written before the release"}},
	{"anybody's end closes the fence", "close_fence", replacing("f.granted_token = p_token and f.open", "f.open"),
		[]string{"a grant is closed by its own token alone"}},
	{"rejections look at the name alone", "admit",
		replacing("a.subtree_token > coalesce(stored.newest, 0)", "false"),
		[]string{"scope: below, after release", "scope: below, as a reader of the subtree"}},
	{"rejections look at the subtree alone", "admit", replacing("a.subtree_token > coalesce(stored.newest, 0)", "true"),
		[]string{"scope: where a name below was granted since"}},
	{"rejections look at the topmost subtree alone", "admit",
		replacing("order by a.subtree_token desc limit 1", "order by a.resource limit 1"),
		[]string{"scope: in a subtree below that was granted since"}},
	{"no token is adopted", "lock_write_tokens",
		replacing("update fence.fences f set adopted_token = u.token", "update fence.fences f set adopted_token = null"),
		[]string{"subtree: step 1: a token", "scope: far below"}},
	{"the token of a subtree that was released is adopted", "lock_write_tokens",
		replacing("and a.open and a.granted_token = u.token and a.subtree_token = u.token", ""),
		[]string{"step 3: a write with the token of a subtree that waits for its release"}},
	{"the token of a subtree that is not its newest grant is adopted", "lock_write_tokens",
		removing("a.granted_token = u.token and "),
		[]string{"P3: a write with the token of a subtree that waits for a grant of the name alone"}},
	{"an older token is adopted", "lock_write_tokens", replacing("n.subtree_token > u.token", "false"),
		[]string{"scope: in a subtree below that was granted since"}},
	{"a resource below gets no fence", "lock_write_tokens", replacing("v_needed := coalesce(v_adopting, '{}')", "v_needed := '{}'::text[]"),
		[]string{"subtree: step 1: a token", "scope: far below"}},
	{"the lease of a token is looked for on the resource", "leases_of",
		replacing("fence.ancestors(p_resource) || p_resource", "array[p_resource]"),
		[]string{"subtree: step 5: the lease_id", "subtree: step 5: the lease_id where one is demanded",
			"subtree: step 6: a live lease where one is demanded"}},

	{"leases of subtrees above are overlooked", "conflicting_leases",
		replacing(" and l.scope = 'subtree'\n", " and false\n"),
		[]string{"P1: no name below a subtree", "P1: no writer of a name below readers of a subtree"}},
	{"leases of names above hold those below", "conflicting_leases", replacing(" and l.scope = 'subtree'\n", "\n"),
		[]string{"P1: a name below a name"}},
	{"leases below are overlooked", "conflicting_leases", replacing("p_scope = 'subtree' and", "false and"),
		[]string{"P1: no subtree above a name", "P1: no subtree above a subtree", "P1: no subtree above a reader of a name"}},
	{"a subtree covers what is beside", "conflicting_leases",
		replacing("fence.is_below(l.lock, p_lock)", "l.lock ^@ p_lock::text"),
		[]string{"P1: subtrees beside each other, one a prefix of the other"}},
	{"a lease is expired though the subtree above was granted", "lease_status",
		removing(", fence.granted_above(p_lock)"),
		[]string{"P6: a name that has expired, since the subtree above was granted"}},
	{"tokens overlook the subtrees above", "grant_lease",
		replacing("p_fence.last_token, p_above)", "p_fence.last_token)"),
		[]string{"P2: a sequence that lags behind the subtree above"}},
	{"tokens overlook the names below", "grant_lease", replacing("max(greatest(f.granted_token, f.last_token))", "max(0)"),
		[]string{"P2: a sequence that lags behind a name below"}},

	{"writers don't hold the subtree", "lock_write_tokens", removing(" for share"),
		[]string{
			"P3: a subtree is granted during a write with its token before",
			"P3: a name is granted alone during a write below with the subtree's token",
			"P3: a subtree is granted during a write with the token of a subtree below",
			"P3: a subtree is granted during a write with the token of a subtree above",
		}},
	{"a token that was guessed passes", "admit", removing(" and (p_wait is null or c.resource = any (v_unlocked))"),
		[]string{"P5: a token that is granted after the write was sent"}},
	{"there is no tree lock", "acquire_lease", removing("perform fence.take_tree_lock(p_request.lock, 'node');"),
		[]string{"P1: a name is asked for while the subtree is granted",
			"P1: a subtree is asked for while a name in it is granted"}},
	{"the tree lock is open to all", "take_tree_lock", replacing("perform fence.take_tree_lock_alone(",
		"perform pg_advisory_xact_lock_shared(1718511205, "),
		[]string{"P1: a name is asked for while the subtree is granted",
			"P1: a subtree is asked for while a name in it is granted"}},

	{"a try jumps the queue", "acquire_lease",
		replacing("if v_found.waiters or v_trees then", "if false then"),
		[]string{"P8: a try does not jump the queue", "P8: a try for a name stands behind a waiter for the subtree"}},
	{"readers jump the queue of a writer", "must_queue",
		replacing("w.ticket < p_ticket and w.mode = 'exclusive')", "false)"),
		[]string{"P8: a reader does not jump the queue of a writer"}},
	{"writers jump the queue of readers", "must_queue",
		replacing("if exists (select from fence.live_waiters() w where w.lock = p_lock and w.ticket < p_ticket) then", "if false then"),
		[]string{"P8: a writer does not jump the queue of a reader"}},
	{"a waiter for a subtree above is overlooked", "must_queue",
		replacing("w.scope = 'subtree' and w.ticket < p_ticket", "false"),
		[]string{"P8: a try for a name stands behind a waiter for the subtree"}},
	{"a waiter below is overlooked", "must_queue",
		replacing("return p_scope = 'subtree' and exists", "return false and exists"),
		[]string{"P8: a try for a subtree stands behind a waiter for a name"}},
	{"the dead hold others up", "live_waiters", replacing("g.alive_until > clock_timestamp()", "true"),
		[]string{"P8: nobody stands behind a waiter that is gone"}},
}

// sessionMutations break sessions.
var sessionMutations = []mutation{
	{"a lease outlasts its session", "grant_lease", replacing("coalesce(p_request.expires_at, ", "coalesce(null, "),
		[]string{"session: a lease ends with it"}},
	{"leases of a session are ended elsewhere", "expire_or_blocker",
		replacing("or l.session_id is null", "or true"),
		[]string{
			"session: below, swept after a name below was granted",
		}},
	{"the end of a session leaves the fences open", "settle_leases",
		removing("            perform fence.close_fence(v_lease.lock, v_lease.fencing_token);\n"),
		[]string{"session: after its end", "session: when it has expired and was swept", "session: below, after its end"}},
	{"a lease in a session is renewed", "renew_leases", removing("o.session_id is null and "),
		[]string{"session: a lease in it is not renewed"}},
	{"a session that is over is kept alive", "keep_alive",
		replacing("if status <> 'live' then", "if session.session_id is null then"),
		[]string{"session: over", "session: expired"}},
	{"a lease is granted in a session that is over", "session_is_live", replacing("p_session.ended_at is null", "true"),
		[]string{"session: over"}},
	{"a lease is granted in a session that has expired", "session_is_live",
		replacing("p_session.expires_at > clock_timestamp()", "true"), []string{"session: expired"}},
	{"a lease is granted in a session that has expired meanwhile", "grant_lease",
		replacing("if p_request.expires_at <= v_lease.granted_at then", "if false then"),
		[]string{
			"a session that expires while an acquire in it waits",
			"a session that expires while the turn of its waiter comes",
		}},
	{"a session is not locked while a lease is granted in it", "acquire_lease",
		replacing("where s.session_id = p_request.session_id for share;",
			"where s.session_id = p_request.session_id and true;"),
		[]string{"a lease that is granted in a session while that is ended"}},
}
