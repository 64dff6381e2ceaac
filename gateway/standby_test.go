package gateway

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencegate/fencegate/internal/test/testenv/await"
	pgtest "github.com/fencegate/fencegate/internal/test/testenv/postgres"
	"github.com/fencegate/fencegate/lockclient/api"
	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/postgres"
)

// pair is a gateway before a primary whose commits wait for a standby.
type pair struct {
	*harness

	primary, standby *pgtest.Cluster
}

// newPair makes a pair whose standby is up. Of the two the gateway finds the one that accepts writes.
func newPair(t *testing.T) pair {
	t.Helper()
	primary := pgtest.NewCluster(t)
	standby := primary.Standby()
	h := newHarnessOn(t, Config{}, postgres.Config{
		DatabaseURL: pgtest.FailoverURL(primary, standby), StatementTimeout: time.Hour,
	})
	if err := h.store.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.exec(t, "alter system set synchronous_standby_names = '*'") // not in the standby's own configuration
	h.exec(t, "select pg_reload_conf()")
	p := pair{h, primary, standby}
	await.True(t, "commits wait for the standby", func() bool {
		return p.count(t, "select count(*) from pg_stat_replication where sync_state = 'sync'") == 1 &&
			p.count(t, "select count(*) from pg_settings where name = 'synchronous_standby_names' and setting = '*'") == 1
	})
	return p
}

// waitingCommits are the database sessions whose commit waits for the standby, without the prober's.
const waitingCommits = " from pg_stat_activity where datname = current_database() and wait_event = 'SyncRep' " +
	"and query <> 'select fence.probe()'"

// awaitCommit returns when a commit waits for the standby.
func (p pair) awaitCommit(t *testing.T) {
	t.Helper()
	await.True(t, "a commit waits for the standby", func() bool {
		return p.count(t, "select count(*)"+waitingCommits) > 0
	})
}

// Ends of a commit's wait for the standby, as an administrator may order them.
const (
	cancel    = "pg_cancel_backend(pid)"
	terminate = "pg_terminate_backend(pid, 60000)"
)

// endWaits ends the waits of commits until there is an answer. There must be one at least.
func (p pair) endWaits(t *testing.T, how string, answers <-chan answer) (got answer) {
	t.Helper()
	ended := int64(0)
	await.True(t, "the commit that did not wait to its end is answered", func() bool {
		ended += p.count(t, "select count("+how+")"+waitingCommits)
		select {
		case got = <-answers:
			return true
		default:
			return false
		}
	})
	if ended == 0 {
		t.Fatalf("%s: answered without a wait for the standby: %s", got.request, got.body)
	}
	return got
}

// unconfirmed is a call whose commit no standby confirms, and what the same is answered when one does.
type unconfirmed struct {
	name, method, path, body, header string

	again    int    // the status
	contains string // what is in the answer
}

func (u unconfirmed) send(t *testing.T, h *harness) <-chan answer {
	return inBackground(func() answer { return h.send(t, u.method, u.path, u.body, u.header) })
}

// P14, P10: A commit whose wait for the standby was ended is answered unknown, and so is the same sent again, until a
// standby has confirmed it. Then the answer is that of the first.
func TestCommitsThatNoStandbyConfirms(t *testing.T) {
	p := newPair(t)
	p.exec(t, "do $$begin execute format('alter role %I set client_min_messages = error', current_user); end$$")
	p.endSessions(t)
	kept, session := p.acquire(t, "kept", "worker"), p.createSession(t, "worker", time.Hour)
	writes, others := p.unconfirmedWrites(t), p.unconfirmedCalls(t)
	p.exec(t, warnings)
	as[api.WriteResult](t, p.put(t, kept, 1, "confirmed, beside the warnings of a table"), http.StatusCreated)
	p.standby.Stop()

	p.endEachWait(t, writes) // a policy would have them take another path
	p.exec(t, `begin; set local synchronous_commit = off;
		insert into fence.policies (prefix, authority) values ('former', 'builtin'), ('external', 'external'); commit`)
	p.endEachWait(t, others)
	const metric = "fencegate_database_errors_total"
	counted, _ := p.scrape(t)
	if n, calls := counted.value(metric, "reason", "not_replicated"), 2*len(writes)+2*len(others); n < float64(calls) {
		t.Errorf("%s counts %v commits that no standby has confirmed, want at least %d", metric, n, calls)
	}
	t.Run("what need not be durable", func(t *testing.T) {
		p.renew(t, kept)
		p.keepAlive(t, session)
		p.record(t)
	})
	t.Run("reads", func(t *testing.T) { p.readUnconfirmed(t) })
	t.Run("SQL", func(t *testing.T) { p.guardUnconfirmed(t) })
	waiter := p.grantUnconfirmed(t)

	p.standby.Restart()
	for _, u := range append(writes, others...) {
		got := <-u.send(t, p.harness)
		if got.status != u.again || !strings.Contains(string(got.body), u.contains) {
			t.Errorf("%s: the confirmed commit is answered %d: %s; want %d with %s", u.name, got.status, got.body, u.again, u.contains)
		}
	}
	lease := granted(t, waiter)
	as[api.WriteResult](t, p.put(t, lease, 1, "under the lease that was waited for"), http.StatusOK)
	p.expectOnce(t)

	t.Run("shutdown", func(t *testing.T) { p.shutDownPrimary(t, lease) })
	t.Run("caller gone", func(t *testing.T) { p.leaveCommit(t) })
}

// expectOnce expects that every call was applied once.
func (p pair) expectOnce(t *testing.T) {
	t.Helper()
	got := strings.Join(p.texts(t, `
		select format('%s: %s grants, %s writes', f.resource, count(l), f.last_version)
		from fence.fences f left join fence.leases l on l.lock = f.resource
		where f.resource in ('put', 'delete', 'transaction', 'new', 'kept') or f.resource like 'bulk/%'
		group by f.resource, f.last_version order by 1`), "\n")
	const want = `bulk/0: 1 grants, 2 writes
bulk/1: 1 grants, 2 writes
bulk/2: 1 grants, 2 writes
bulk/3: 1 grants, 2 writes
bulk/4: 1 grants, 2 writes
delete: 1 grants, 2 writes
kept: 2 grants, 2 writes
new: 1 grants, 0 writes
put: 1 grants, 2 writes
transaction: 1 grants, 1 writes`
	if got != want {
		t.Errorf("each call was sent three times; what it did is\n%s\nwant\n%s", got, want)
	}
}

// shutDownPrimary shuts the primary down while a commit waits. Started again it shows the commit, and what is sent again
// waits.
func (p pair) shutDownPrimary(t *testing.T, lease api.Lease) {
	t.Helper()
	put := func() <-chan answer {
		return inBackground(func() answer { return p.put(t, lease, 2, "at the shutdown") })
	}
	p.standby.Stop()
	first := put()
	p.awaitCommit(t)
	p.primary.Stop()
	expectUnknown(t, <-first)
	p.primary.Restart()
	p.db.Reset()
	again := inBackground(func() answer { return insist(t, func() answer { return <-put() }) })
	p.awaitCommit(t)
	p.standby.Restart()
	if result := as[api.WriteResult](t, <-again, http.StatusOK); !result.Replayed {
		t.Errorf("the write that the primary had committed before its shutdown is answered %+v, want a replay", result)
	}
}

// leaveCommit ends the context of a call while its commit waits.
func (p pair) leaveCommit(t *testing.T) {
	t.Helper()
	p.standby.Stop()
	ctx, leave := context.WithCancel(t.Context())
	failed := make(chan error, 1)
	go func() {
		failed <- p.store.PutPolicy(ctx, store.Policy{Prefix: "left", Rule: store.RuleStrict, Authority: store.AuthorityBuiltin})
	}()
	p.awaitCommit(t)
	leave()
	if err := await.Receive(t, "the call returns", failed); store.OutcomeOf(err) != store.OutcomeUnknown {
		t.Errorf("the call whose caller has left returned %v, want an unknown outcome", err)
	}
}

// insist sends a call until it is answered: after the end of a server the gateway finds out for one connection after the
// other.
func insist(t *testing.T, call func() answer) (got answer) {
	t.Helper()
	await.True(t, "the gateway serves again", func() bool {
		got = call()
		return got.status != http.StatusServiceUnavailable
	})
	return got
}

// warnings has a table warn of each of its rows, at once and at the commit.
const warnings = `
	create function public.warn() returns trigger language plpgsql as $$begin raise warning 'of the table'; return null; end$$;
	create trigger warn after insert on fence.records for each row execute function public.warn();
	create constraint trigger warn_late after insert on fence.records deferrable initially deferred
		for each row execute function public.warn()`

// endEachWait sends each call twice, and ends its waits for the standby.
func (p pair) endEachWait(t *testing.T, calls []unconfirmed) {
	t.Helper()
	for _, how := range []string{cancel, terminate} {
		for _, u := range calls {
			expectUnknown(t, p.endWaits(t, how, u.send(t, p.harness)))
		}
	}
}

// unconfirmedWrites returns a write of each kind.
func (p pair) unconfirmedWrites(t *testing.T) []unconfirmed {
	t.Helper()
	lease := func(lock string) api.Lease { return p.acquire(t, lock, "worker") }
	put, transacted, deleted := lease("put"), lease("transaction"), lease("delete")
	as[api.WriteResult](t, p.put(t, deleted, 1, "value"), http.StatusCreated)
	var lines strings.Builder
	for i := range 5 {
		lease := lease(fmt.Sprint("bulk/", i))
		lines.WriteString(putLine(lease, 1, "k", "1") + putLine(lease, 2, "k", "2"))
	}
	const replayed = `"replayed":true`
	return []unconfirmed{
		{"put", "PUT", recordPath("put", "k"), "value", token(put, 1), 412, `"reason":"reused"`},
		{"another put", "PUT", recordPath("put", "k"), "another", token(put, 2), 200, replayed},
		{"delete", "DELETE", recordPath("delete", "k"), "", token(deleted, 2), 200, replayed},
		{"transaction", "POST", "/v1/transactions", transaction(transacted, 1), jsonType, 200, replayed},
		{"bulk", "POST", "/v1/writes", arrayOf(lines.String()), jsonType, 200, replayed},
	}
}

// unconfirmedCalls returns a call of each other kind whose effect is acknowledged.
func (p pair) unconfirmedCalls(t *testing.T) []unconfirmed {
	t.Helper()
	lease := func(lock string) api.Lease { return p.acquire(t, lock, "worker") }
	released, ended := lease("released"), p.createSession(t, "worker", time.Hour)
	lease("broken")
	lease("sql")
	p.acquireAs(t, "in-session", api.AcquireRequest{OwnerID: "worker", SessionID: &ended.SessionID})
	const acquire = `{"owner_id":"worker","request_id":"r","ttl_ms":3600000}`
	return []unconfirmed{
		{"acquire", "POST", lockPath("new", "/acquire"), acquire, jsonType, 200, "fencing_token"},
		{"release", "POST", lockPath("released", "/release"), refOf(released), jsonType, 200, ""},
		{"break", "POST", lockPath("broken", "/break"), `{"reason":"r"}`, jsonType, 404, "Nobody holds"},
		{"create a session", "POST", "/v1/sessions", `{"owner_id":"worker"}`, jsonType, 201, "session_id"},
		{"end a session", "DELETE", sessionPath(ended), "", jsonType, 200, `"released":`},
		{"set a policy", "PUT", "/v1/policies/new", "{}", jsonType, 200, ""},
		{"delete a policy", "DELETE", "/v1/policies/former", "", jsonType, 404, "no policy"},
		{"set a fence", "PUT", "/v1/resources/external/fence", `{"last_token":7,"reason":"r"}`, jsonType, 200, ""},
	}
}

// expectUnknown expects that the change of a request may or may not have been made; of an array, those of some writes,
// and that the writes behind them were not decided.
func expectUnknown(t *testing.T, got answer) {
	t.Helper()
	if got.status != http.StatusOK {
		expectUnavailable(t, got, api.OutcomeUnknown)
		return
	}
	unknown := 0
	for _, result := range bulkAnswers(t, got) {
		switch {
		case result.Problem != nil && result.Problem.Outcome == api.OutcomeUnknown:
			unknown++
		case result.Problem == nil || result.Problem.Outcome != api.OutcomeNotApplied:
			t.Errorf("a write is answered %s, want it to be unavailable", encode(result))
		}
	}
	if unknown == 0 {
		t.Errorf("no write of an array is unknown: %s", got.body)
	}
}

// readUnconfirmed reads what the primary alone has.
func (p pair) readUnconfirmed(t *testing.T) {
	t.Helper()
	p.expectRecord(t, recordPath("put", "k"), "another", "application/octet-stream")
	for _, key := range []string{"k", "none"} {
		got := inBackground(func() answer { return p.get(t, recordPath("put", key)+"?consistency=durable") })
		expectUnavailable(t, p.endWaits(t, cancel, got), api.OutcomeNotApplied)
	}
}

// guardUnconfirmed ends the wait of an application's own commit, which only warns it. The transaction repeated is known
// to be done, and its commit waits in turn.
func (p pair) guardUnconfirmed(t *testing.T) {
	t.Helper()
	for _, want := range []string{"true <nil>", "false <nil>"} {
		got := p.endWaits(t, cancel, inBackground(func() answer {
			var admitted bool
			err := pgx.BeginFunc(t.Context(), p.db, func(tx pgx.Tx) error {
				const guard = `select fence.guard(lock, fencing_token, 1, null, 'digest') from fence.leases where lock = 'sql'`
				return tx.QueryRow(t.Context(), guard).Scan(&admitted)
			})
			return answer{request: "guard", body: fmt.Append(nil, admitted, " ", err)}
		}))
		if string(got.body) != want {
			t.Errorf("a guard whose commit no standby has confirmed: %s, want %s", got.body, want)
		}
	}
}

// grantUnconfirmed has a lock granted to a waiter, and ends the wait of the grant's commit. The waiter must not be told:
// it asks again, and waits for the standby.
func (p pair) grantUnconfirmed(t *testing.T) (waiter <-chan answer) {
	t.Helper()
	holder := p.count(t, "select fencing_token from fence.leases where lock = 'kept'")
	waiter = p.waitInQueue(t, "kept", api.AcquireRequest{OwnerID: "waiter"})
	breaking := inBackground(func() answer { return p.post(t, lockPath("kept", "/break"), `{"reason":"r"}`) })
	expectUnavailable(t, p.endWaits(t, cancel, breaking), api.OutcomeUnknown)
	for range 2 { // the grant, and the waiter's question
		p.awaitCommit(t)
		p.count(t, "select count("+cancel+")"+waitingCommits)
	}
	await.True(t, "the lock is granted to the waiter, on the primary", func() bool {
		return p.count(t, "select max(fencing_token) from fence.leases where lock = 'kept'") > holder
	})
	p.awaitCommit(t)
	select {
	case got := <-waiter:
		t.Fatalf("the waiter is answered %s, though no standby has confirmed the grant", got.body)
	default:
	}
	return waiter
}
