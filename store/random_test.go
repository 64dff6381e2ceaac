package store_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"pgregory.net/rapid"

	"github.com/fencegate/fencegate/internal/pgtest"
	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/storetest"
)

// TestRandomSequences does one random thing after the other to a Store and to the model of the contract: every answer must be the same.
// A set of writes must be answered as the model answers its writes one by one.
func TestRandomSequences(t *testing.T) {
	url := pgtest.Migrated(t)
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	gateway := openStore(t, store.Config{DatabaseURL: url})
	runs, told := 0, map[string]int{}
	rapid.Check(t, func(t *rapid.T) {
		runs++
		r := newRandomRun(gateway, conn, fmt.Sprintf("run-%d", runs), told)
		defer r.forgetPolicies(t)
		for _, name := range r.names {
			r.acquireOn(t, name)
		}
		t.Repeat(map[string]func(*rapid.T){
			"acquire": r.acquire, "renew": r.renew, "release": r.release, "break": r.breakLock, "expire": r.expire, "sweep": r.sweep,
			"holdOut":     r.holdOut,
			"acquireMore": r.acquire, "openSession": r.openSession, "keepAlive": r.keepAlive, "endSession": r.endSession,
			"expireSession": r.expireSession, "lookAtSession": r.lookAtSession,
			"write": r.write, "writeMore": r.write, "writeAgain": r.writeAgain, "writeSet": r.writeSet, "writeMoreSets": r.writeSet,
			"transact": r.transact, "transactMore": r.transact, "transactAgain": r.transactAgain, "transactAndWrite": r.transactAndWrite,
			"putPolicy": r.putPolicy, "deletePolicy": r.deletePolicy,
			"lookAtLock": r.lookAtLock, "lookAtFence": r.lookAtFence,
		})
		r.lookAtAll(t)
	})
	t.Logf("told %v", told)
}

// randomRun is one sequence, on names of its own.
type randomRun struct {
	gateway *store.Store
	sql     *pgx.Conn // past the gateway
	world   storetest.World
	prefix  string
	names   []store.Name
	told    map[string]int // answers of all runs, by code

	leases       []store.Lease // that were ever granted
	sessions     []uuid.UUID   // that were ever opened
	writes       []store.Write // that were ever sent, like transactions
	transactions []store.Transaction
}

func newRandomRun(gateway *store.Store, conn *pgx.Conn, prefix string, told map[string]int) *randomRun {
	r := &randomRun{gateway: gateway, sql: conn, prefix: prefix, told: told}
	for _, name := range []string{"/a", "/b", "/b/c", "/b/c/d"} {
		r.names = append(r.names, store.Name(prefix+name))
	}
	return r
}

// same ends the run if the Store's answer is not the model's.
func (r *randomRun) same(t *rapid.T, what string, got, want storetest.Told) {
	t.Helper()
	t.Logf("%s → %s", what, got)
	r.told[strings.TrimSpace(got.Code+" "+got.Reason+map[bool]string{true: "replayed"}[got.Replayed])]++
	if !got.Same(want) {
		t.Fatalf("%s\n     is told %s\nand must be told %s\nin %s", what, got, want, r.world.Summary())
	}
}

func (r *randomRun) name(t *rapid.T) store.Name { return rapid.SampledFrom(r.names).Draw(t, "name") }

func (r *randomRun) acquire(t *rapid.T) { r.acquireOn(t, r.name(t)) }

func (r *randomRun) acquireOn(t *rapid.T, name store.Name) {
	request := store.AcquireRequest{
		Lock:    name,
		OwnerID: rapid.SampledFrom([]string{"A", "B"}).Draw(t, "owner"),
		Mode:    rapid.SampledFrom([]store.Mode{store.Exclusive, store.Exclusive, store.Exclusive, store.Shared}).Draw(t, "mode"),
		Scope:   rapid.SampledFrom([]store.Scope{store.Node, store.Node, store.Node, store.Subtree}).Draw(t, "scope"),
		// Longer than any test runs: a lease expires when the run says so.
		TTL:       time.Hour + time.Duration(rapid.IntRange(0, 1000).Draw(t, "ttl"))*time.Millisecond,
		RequestID: rapid.SampledFrom([]string{"", "", "", "r1", "r2"}).Draw(t, "request"),
	}
	if rapid.IntRange(0, 3).Draw(t, "in a session") == 0 {
		request.SessionID, request.TTL = r.session(t), 0
	}
	lease, err := r.gateway.Acquire(t.Context(), request)
	if err == nil {
		r.leases = append(r.leases, lease)
	}
	next, want := r.world.Acquire(request, storetest.GrantOf(lease, request.RequestID))
	r.same(t, fmt.Sprintf("acquire %s %s of %s by %s, request %q, session %s",
		request.Mode, request.Scope, request.Lock, request.OwnerID, request.RequestID, request.SessionID),
		storetest.ToldLease(storetest.CodeGranted, lease, err), want)
	r.world = next
	if err == nil && (lease.Mode != request.Mode || lease.Scope != request.Scope || lease.SessionID != request.SessionID) && request.RequestID == "" {
		t.Fatalf("granted is %+v", lease)
	}
}

// lease names a lease as its holder would, or somebody who has it wrong.
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
	ref := r.lease(t)
	ttl := rapid.SampledFrom([]time.Duration{0, 2 * time.Hour}).Draw(t, "ttl")
	lease, err := r.gateway.Renew(t.Context(), ref, ttl)
	next, want := r.world.Renew(ref, ttl, lease.ExpiresAt.UnixMicro())
	r.same(t, fmt.Sprintf("renew %+v", ref), storetest.ToldLease(storetest.CodeRenewed, lease, err), want)
	r.world = next
	if err == nil && ttl != 0 && lease.TTL != ttl {
		t.Fatalf("renewed for %s, the TTL is now %s", ttl, lease.TTL)
	}
}

func (r *randomRun) release(t *rapid.T) {
	ref := r.lease(t)
	err := r.gateway.Release(t.Context(), ref)
	next, want := r.world.Release(ref)
	r.same(t, fmt.Sprintf("release %+v", ref), storetest.ToldDone(storetest.CodeReleased, err), want)
	r.world = next
}

// breakLock is followed by an acquire, without which little happens on the name.
func (r *randomRun) breakLock(t *rapid.T) {
	name := r.name(t)
	lease, err := r.gateway.Break(t.Context(), name, "at random")
	next, want := r.world.Break(name)
	r.same(t, fmt.Sprintf("break %s", name), storetest.ToldLease(storetest.CodeBroken, lease, err), want)
	r.world = next
	if rapid.IntRange(0, 2).Draw(t, "quiet") > 0 {
		r.acquireOn(t, name)
	}
}

// expire moves the end of a lease to now.
func (r *randomRun) expire(t *rapid.T) {
	name := r.name(t)
	running := slices.DeleteFunc(r.world.Resource(name).Running(), func(grant storetest.Grant) bool { return grant.SessionID != uuid.Nil })
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
	r.world = r.world.ExpireAt(name, token, at.UnixMicro())
}

// holdOut moves the hold_until of a lease, and with it its end, to now.
func (r *randomRun) holdOut(t *rapid.T) {
	name := r.name(t)
	grants := r.world.Resource(name).Running()
	if newest, ok := r.world.Resource(name).Newest(); ok {
		grants = append(grants, newest)
	}
	if len(grants) == 0 {
		t.Skip("there is no lease")
	}
	token := rapid.SampledFrom(grants).Draw(t, "lease").Token
	var at time.Time
	err := r.sql.QueryRow(t.Context(), `
		update fence.leases l
		set hold_until = now.at, expires_at = case when l.session_id is null then least(l.expires_at, now.at) else l.expires_at end
		from (select clock_timestamp() as at) now
		where l.lock = $1 and l.fencing_token = $2 and l.hold_until > now.at and (l.ended_at is null or l.end_reason = 'expired')
		returning now.at`, name, token).Scan(&at)
	if err != nil {
		t.Skip("the lease has no limit")
	}
	r.world = r.world.HoldOut(name, token, at.UnixMicro())
}

// sweep may change no answer, but that it closes the fences of sessions that are over.
func (r *randomRun) sweep(t *rapid.T) {
	sweeper, err := store.NewSweeper(r.gateway, store.SweeperConfig{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := sweeper.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.world = r.world.Settle()
}

func (r *randomRun) policyPrefix(t *rapid.T) string {
	return r.prefix + rapid.SampledFrom([]string{"", "/a", "/b", "/b/c"}).Draw(t, "prefix")
}

func (r *randomRun) putPolicy(t *rapid.T) {
	policy := store.Policy{
		Prefix:    r.policyPrefix(t),
		Rule:      rapid.SampledFrom([]store.Rule{store.RuleStrict, store.RuleSameToken}).Draw(t, "rule"),
		Authority: rapid.SampledFrom([]store.Authority{store.AuthorityBuiltin, store.AuthorityBuiltin, store.AuthorityExternal}).Draw(t, "authority"),
	}
	if policy.Authority == store.AuthorityBuiltin {
		policy.RequireLeaseID = rapid.Bool().Draw(t, "require_lease_id")
		policy.MaxHold = rapid.SampledFrom([]time.Duration{0, 30 * time.Minute, 48 * time.Hour}).Draw(t, "max_hold")
		policy.RequireLiveLease = rapid.Bool().Draw(t, "require_live_lease")
	}
	if err := r.gateway.PutPolicy(t.Context(), policy); err != nil {
		t.Fatal(err)
	}
	r.world = r.world.WithPolicy(policy)
}

func (r *randomRun) deletePolicy(t *rapid.T) {
	prefix := r.policyPrefix(t)
	if err := r.gateway.DeletePolicy(t.Context(), prefix); err != nil && storetest.ToldError(err).Code != storetest.CodeNotFound {
		t.Fatal(err)
	}
	r.world = r.world.WithoutPolicy(prefix)
}

func (r *randomRun) forgetPolicies(t *rapid.T) {
	if _, err := r.sql.Exec(t.Context(), "delete from fence.policies"); err != nil {
		t.Fatal(err)
	}
}
