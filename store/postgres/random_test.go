package postgres_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"pgregory.net/rapid"

	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/groupcommit"
	"github.com/fencegate/fencegate/store/postgres"
	"github.com/fencegate/fencegate/store/storetest"
)

// TestRandomSequences makes random calls, one after the other, to a Store and to the model of the contract: every
// answer must be the same. A set of writes must be answered as the model answers its writes one by one.
func TestRandomSequences(t *testing.T) {
	t.Parallel()
	gateway, conn := newRandomStore(t)
	runs, answers := 0, map[string]int{}
	rapid.Check(t, func(t *rapid.T) {
		runs++
		r := newRandomRun(gateway, conn, fmt.Sprintf("run-%d", runs), answers)
		defer r.forgetPolicies(t)
		for _, name := range r.names {
			r.acquireOn(t, name)
		}
		t.Repeat(map[string]func(*rapid.T){
			"acquire": r.acquire, "renew": r.renew, "release": r.release, "break": r.breakLock, "expire": r.expire,
			"sweep":       r.sweep,
			"holdOut":     r.holdOut,
			"acquireMore": r.acquire, "openSession": r.openSession, "keepAlive": r.keepAlive, "endSession": r.endSession,
			"expireSession": r.expireSession, "readSession": r.readSession,
			"write": r.write, "writeMore": r.write, "writeAgain": r.writeAgain, "writeSet": r.writeSet,
			"writeMoreSets": r.writeSet,
			"transact":      r.transact, "transactMore": r.transact, "transactAgain": r.transactAgain,
			"transactAndWrite": r.transactAndWrite,
			"putPolicy":        r.putPolicy, "deletePolicy": r.deletePolicy,
			"readLock": r.readLock, "readFence": r.readFence,
		})
		r.readAll(t)
	})
	if answers[chainCount] == 0 {
		t.Error("no chain of writes was admitted")
	}
	t.Logf("answers: %v", answers)
}

// newRandomStore is a Store on a database of its own, and a connection past it.
func newRandomStore(t *testing.T) (*postgres.Store, *pgx.Conn) {
	t.Helper()
	b := newTestbed(t)
	conn, err := b.SQL.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Release)
	return b.Store, conn.Conn()
}

// randomRun is one sequence, on names of its own.
type randomRun struct {
	gateway *postgres.Store
	sql     *pgx.Conn // past the gateway
	model   storetest.Model
	prefix  string
	names   []store.Name
	counts  map[string]int // answers of all runs, by code

	leases       []store.Lease // that were ever granted
	sessions     []uuid.UUID   // that were ever opened
	writes       []store.Write // that were ever sent, like transactions
	transactions []store.Transaction
}

func newRandomRun(gateway *postgres.Store, conn *pgx.Conn, prefix string, counts map[string]int) *randomRun {
	r := &randomRun{gateway: gateway, sql: conn, prefix: prefix, counts: counts}
	for _, name := range []string{"/a", "/b", "/b/c", "/b/c/d"} {
		r.names = append(r.names, store.Name(prefix+name))
	}
	return r
}

// do makes a call. The run ends if the Store's answer is not the model's.
func (r *randomRun) do(t *rapid.T, call historyCall) historyResult {
	t.Helper()
	result := call.perform(t.Context(), r.gateway)
	next, want := call.predict(r.model, result)
	r.same(t, call.String(), result.answer, want)
	r.model = next
	return result
}

// same ends the run if the Store's answer is not the model's.
func (r *randomRun) same(t *rapid.T, call string, got, want storetest.Answer) {
	t.Helper()
	t.Logf("%s → %s", call, got)
	r.counts[verdictOf(got)]++
	if !got.Same(want) {
		t.Fatalf("%s\nreturned %s\nwant     %s\nin %s", call, got, want, r.model.Summary())
	}
}

func (r *randomRun) name(t *rapid.T) store.Name { return rapid.SampledFrom(r.names).Draw(t, "name") }

func (r *randomRun) acquire(t *rapid.T) { r.acquireOn(t, r.name(t)) }

func (r *randomRun) acquireOn(t *rapid.T, name store.Name) {
	request := store.AcquireRequest{
		Lock:    name,
		OwnerID: rapid.SampledFrom([]string{"A", "B"}).Draw(t, "owner"),
		Mode: rapid.SampledFrom([]store.Mode{store.Exclusive, store.Exclusive, store.Exclusive, store.Shared}).Draw(t,
			"mode"),
		Scope: rapid.SampledFrom([]store.Scope{store.Node, store.Node, store.Node, store.Subtree}).Draw(t, "scope"),
		// Longer than any test runs: only expire lets a lease expire.
		TTL:       time.Hour + time.Duration(rapid.IntRange(0, 1000).Draw(t, "ttl"))*time.Millisecond,
		RequestID: rapid.SampledFrom([]string{"", "", "", "r1", "r2"}).Draw(t, "request"),
	}
	if rapid.IntRange(0, 3).Draw(t, "in a session") == 0 {
		request.SessionID, request.TTL = r.session(t), 0
	}
	result := r.do(t, historyCall{resources: []store.Name{name}, acquire: &request})
	if result.answer.Code != storetest.CodeGranted {
		return
	}
	made := result.made
	r.leases = append(r.leases, store.Lease{Lock: name, OwnerID: made.OwnerID, ID: made.ID, Token: made.Token})
	if (made.Mode != request.Mode || made.Scope != request.Scope || made.SessionID != request.SessionID) &&
		request.RequestID == "" {
		t.Fatalf("granted is %+v, want %+v", made, request)
	}
}

// lease is a reference to a lease, mostly right, sometimes wrong in one field.
func (r *randomRun) lease(t *rapid.T) store.LeaseRef {
	if len(r.leases) == 0 {
		return store.LeaseRef{Lock: r.name(t), OwnerID: "A", ID: uuid.New(), Token: 1}
	}
	ref := r.someLease(t).Ref()
	switch rapid.SampledFrom([]string{"right", "right", "right", "lock", "owner", "id", "token"}).Draw(t, "mistake") {
	case "lock":
		ref.Lock = r.name(t)
	case "owner":
		ref.OwnerID = "somebody"
	case "id":
		ref.ID = uuid.New()
	case "token":
		ref.Token += rapid.Int64Range(-1, 1).Draw(t, "off")
	}
	return ref
}

// someLease is more often a recent one.
func (r *randomRun) someLease(t *rapid.T) store.Lease {
	back := rapid.IntRange(0, min(len(r.leases)-1, 5)).Draw(t, "back")
	return r.leases[len(r.leases)-1-back]
}

func (r *randomRun) renew(t *rapid.T) {
	renewal := historyRenewal{r.lease(t), rapid.SampledFrom([]time.Duration{0, 2 * time.Hour}).Draw(t, "ttl")}
	r.do(t, historyCall{resources: []store.Name{renewal.Lock}, renew: &renewal})
}

func (r *randomRun) release(t *rapid.T) {
	ref := r.lease(t)
	r.do(t, historyCall{resources: []store.Name{ref.Lock}, release: &ref})
}

// breakLock is followed by an acquire, without which little happens on the name.
func (r *randomRun) breakLock(t *rapid.T) {
	name := r.name(t)
	r.do(t, historyCall{resources: []store.Name{name}, broken: true})
	if rapid.IntRange(0, 2).Draw(t, "quiet") > 0 {
		r.acquireOn(t, name)
	}
}

// expire moves the end of a lease to now.
func (r *randomRun) expire(t *rapid.T) {
	name := r.name(t)
	running := slices.DeleteFunc(r.model.Resource(name).Running(),
		func(grant storetest.Grant) bool { return grant.SessionID != uuid.Nil })
	if len(running) == 0 {
		t.Skip("no lease runs")
	}
	token := rapid.SampledFrom(running).Draw(t, "lease").Token
	var at time.Time
	err := r.sql.QueryRow(t.Context(), `
		update fence.leases set expires_at = clock_timestamp(), check_at = '-infinity' where lock = $1 and fencing_token = $2 and ended_at is null returning expires_at`,
		name, token).Scan(&at)
	if err != nil {
		t.Fatal(err)
	}
	r.model = r.model.ExpireAt(name, token, at.UnixMicro())
}

// holdOut moves the hold_until of a lease that runs, and with it its end, to now.
func (r *randomRun) holdOut(t *rapid.T) {
	name := r.name(t)
	running := r.model.Resource(name).Running()
	if len(running) == 0 {
		t.Skip("no lease runs")
	}
	token := rapid.SampledFrom(running).Draw(t, "lease").Token
	var at time.Time
	err := r.sql.QueryRow(t.Context(), `
		update fence.leases l set hold_until = now.at, expires_at = now.at, check_at = now.at
		from (select clock_timestamp() as at) now
		where l.lock = $1 and l.fencing_token = $2 and l.hold_until is not null
		returning now.at`, name, token).Scan(&at)
	if errors.Is(err, pgx.ErrNoRows) {
		t.Skip("the lease has no limit")
	}
	if err != nil {
		t.Fatal(err)
	}
	r.model = r.model.HoldOut(name, token, at.UnixMicro())
}

// sweep may change no answer, but that it closes the fences of sessions that are over.
func (r *randomRun) sweep(t *rapid.T) {
	sweeper, err := postgres.NewSweeper(r.gateway, postgres.SweeperConfig{})
	if err == nil {
		_, err = sweeper.Sweep(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	r.model = r.model.Settle()
}

func (r *randomRun) policyPrefix(t *rapid.T) string {
	return r.prefix + rapid.SampledFrom([]string{"", "/a", "/b", "/b/c"}).Draw(t, "prefix")
}

func (r *randomRun) putPolicy(t *rapid.T) {
	policy := store.Policy{
		Prefix: r.policyPrefix(t),
		Rule:   rapid.SampledFrom([]store.Rule{store.RuleStrict, store.RuleSameToken}).Draw(t, "rule"),
		Authority: rapid.SampledFrom([]store.Authority{store.AuthorityBuiltin, store.AuthorityBuiltin,
			store.AuthorityExternal}).Draw(t, "authority"),
	}
	if policy.Authority == store.AuthorityBuiltin {
		policy.RequireLeaseID = rapid.Bool().Draw(t, "require_lease_id")
		policy.MaxHold = rapid.SampledFrom([]time.Duration{0, 30 * time.Minute, 48 * time.Hour}).Draw(t, "max_hold")
		policy.RequireLiveLease = rapid.Bool().Draw(t, "require_live_lease")
	}
	if err := r.gateway.PutPolicy(t.Context(), policy); err != nil {
		t.Fatal(err)
	}
	r.model = r.model.WithPolicy(policy)
}

func (r *randomRun) deletePolicy(t *rapid.T) {
	prefix := r.policyPrefix(t)
	if err := r.gateway.DeletePolicy(t.Context(), prefix); err != nil &&
		storetest.ErrorAnswer(err).Code != storetest.CodeNotFound {
		t.Fatal(err)
	}
	r.model = r.model.WithoutPolicy(prefix)
}

func (r *randomRun) forgetPolicies(t *rapid.T) {
	if _, err := r.sql.Exec(t.Context(), "delete from fence.policies"); err != nil {
		t.Fatal(err)
	}
}

func (r *randomRun) openSession(t *rapid.T) {
	session, err := r.gateway.CreateSession(t.Context(), store.SessionRequest{
		OwnerID: rapid.SampledFrom([]string{"A", "B"}).Draw(t, "owner"), TTL: time.Hour,
	})
	if err != nil {
		t.Fatal(err)
	}
	r.sessions = append(r.sessions, session.ID)
	r.model = r.model.WithSession(session)
}

// session is one of the last sessions, or one that never existed.
func (r *randomRun) session(t *rapid.T) uuid.UUID {
	back := rapid.IntRange(0, min(len(r.sessions), 3)).Draw(t, "session")
	if back == len(r.sessions) {
		return uuid.New()
	}
	return r.sessions[len(r.sessions)-1-back]
}

func (r *randomRun) keepAlive(t *rapid.T) {
	id := r.session(t)
	r.do(t, historyCall{keepAlive: &id})
}

func (r *randomRun) endSession(t *rapid.T) {
	id := r.session(t)
	leases, err := r.gateway.EndSession(t.Context(), id)
	next, want := r.model.EndSession(id)
	r.same(t, fmt.Sprintf("end %s", id), storetest.EndedAnswer(leases, err), want)
	r.model = next
}

// expireSession moves the end of a session to now.
func (r *randomRun) expireSession(t *rapid.T) {
	id := r.session(t)
	var at time.Time
	err := r.sql.QueryRow(t.Context(), `
		update fence.sessions set expires_at = clock_timestamp(), check_at = '-infinity' where session_id = $1 and ended_at is
			null and expires_at > clock_timestamp()
		returning expires_at`, id).Scan(&at)
	if err != nil {
		t.Skip("the session is over")
	}
	r.model = r.model.SessionOver(id, storetest.Expired, at.UnixMicro())
}

func (r *randomRun) readSession(t *rapid.T) { r.sameSession(t, r.session(t)) }

func (r *randomRun) sameSession(t *rapid.T, id uuid.UUID) {
	session, leases, err := r.gateway.Session(t.Context(), id)
	r.same(t, fmt.Sprintf("session %s", id), storetest.SessionStateAnswer(session, leases, err), r.model.Session(id))
}

// TestRandomGroup submits many random writes at once, among other random things: each must be answered as the model
// answers them one by one, whatever batches they went in.
func TestRandomGroup(t *testing.T) {
	t.Parallel()
	gateway, conn := newRandomStore(t)
	group, err := groupcommit.New(gateway, groupcommit.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer group.Close()
	runs, counts := 0, map[string]int{}
	rapid.Check(t, func(t *rapid.T) {
		runs++
		r := newRandomRun(gateway, conn, fmt.Sprintf("group-%d", runs), counts)
		defer r.forgetPolicies(t)
		for _, name := range r.names {
			r.acquireOn(t, name)
		}
		submit := func(t *rapid.T) { r.submit(t, group) }
		t.Repeat(map[string]func(*rapid.T){
			"submit": submit, "submitMore": submit, "submitAgain": submit, "acquire": r.acquire, "release": r.release,
			"expire":    r.expire,
			"putPolicy": r.putPolicy, "deletePolicy": r.deletePolicy, "write": r.write, "readFence": r.readFence,
		})
		r.readAll(t)
	})
	if counts[chainCount] == 0 {
		t.Error("no chain of writes was admitted")
	}
	stats := group.Stats()
	t.Logf("outcomes %v, in %d batches of %.1f", counts, stats.Batches, float64(stats.Writes)/float64(stats.Batches))
}

type reply struct {
	result store.Result
	err    error
}

// submit draws up to forty writes, some of them in a row, some of them sent before, and sends them without waiting.
func (r *randomRun) submit(t *rapid.T, group *groupcommit.Group) {
	writes := r.drawSet(t, rapid.IntRange(1, 40), 9)
	answers := make([]chan reply, len(writes))
	for i, write := range writes {
		answers[i] = make(chan reply, 1)
		group.Submit(t.Context(), write, func(result store.Result, err error) { answers[i] <- reply{result, err} })
	}
	got := make([]storetest.Answer, len(writes))
	for i := range writes {
		reply := <-answers[i]
		if reply.err != nil {
			t.Fatal(reply.err)
		}
		got[i] = storetest.WriteAnswer(reply.result)
	}
	r.sameAnswers(t, writes, got)
}
