package store_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
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
		for _, table := range []string{"policies", "subtrees", "waiters", "watched", "events"} {
			w.exec(t, "delete from fence."+table)
		}
		for _, way := range leaseWays {
			for _, name := range waysNames {
				w.exec(t, "insert into fence.fences (resource) values ($1)", w.name(way, name))
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

// waysNames are the names of the locks of a world, below its own. Each takes its gates in another way.
var waysNames = []string{"", "/a", "/a/b", "/c/d/e"}

// waysSteps are the steps; those that happen more often are there several times.
var waysSteps = []func(*waysRun, *rapid.T){
	(*waysRun).acquire, (*waysRun).acquire, (*waysRun).acquire, (*waysRun).acquire, (*waysRun).acquire,
	(*waysRun).acquire, (*waysRun).release, (*waysRun).release, (*waysRun).release, (*waysRun).release,
	(*waysRun).release, (*waysRun).wait, (*waysRun).handOver, (*waysRun).handOver, (*waysRun).leave,
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

// decideAcquires sends requests to the function of a way, and returns what was granted, by name. The rows that the
// function returns must be those of the table.
func (w *waysRun) decideAcquires(
	ctx context.Context, way leaseWay, requests []waysRequest,
) (map[string]store.LeaseRef, error) {
	granted := map[string]store.LeaseRef{}
	if way.acquire == "" {
		return granted, nil
	}
	sql := "select l.lock, l.owner_id, l.lease_id, l.fencing_token, to_jsonb(l)::text from " + way.acquire + " l"
	var rows []string
	for set := range slices.Chunk(requests, way.size(len(requests))) {
		var locks, owners, principals, modes []string
		var ttls []int
		var requestIDs, metadata []*string
		for _, r := range set {
			locks, owners = append(locks, w.name(way, r.name)), append(owners, r.owner)
			principals, modes, ttls = append(principals, r.principal), append(modes, r.mode), append(ttls, r.ttl)
			requestIDs, metadata = append(requestIDs, r.requestID), append(metadata, r.metadata)
		}
		var ref store.LeaseRef
		var row string
		err := w.each(ctx, sql, []any{locks, owners, principals, modes, ttls, requestIDs, metadata},
			[]any{&ref.Lock, &ref.OwnerID, &ref.ID, &ref.Token, &row}, func() {
				w.decided[way.acquire]++
				granted[strings.TrimPrefix(string(ref.Lock), w.name(way, ""))] = ref
				rows = append(rows, row)
			})
		if err != nil {
			return nil, err
		}
	}
	return granted, w.areRows(ctx, rows)
}

// each executes a statement and calls read after each row.
func (w *waysRun) each(ctx context.Context, sql string, args, dest []any, read func()) error {
	rows, err := w.bed.SQL.Query(ctx, sql, args...)
	if err != nil {
		return err
	}
	_, err = pgx.ForEachRow(rows, dest, func() error {
		read()
		return nil
	})
	return err
}

// areRows checks that leases that were returned are rows of the table.
func (w *waysRun) areRows(ctx context.Context, leases []string) error {
	for _, lease := range leases {
		var is bool
		const sql = "select exists (select from fence.leases l where l.lock = $1::jsonb->>'lock' and to_jsonb(l) = $1::jsonb)"
		if err := w.bed.SQL.QueryRow(ctx, sql, lease).Scan(&is); err != nil || !is {
			return fmt.Errorf("the lease %s was returned, and it is a row: %v (%w)", lease, is, err)
		}
	}
	return nil
}

// size is how many requests of a step are in one call.
func (way leaseWay) size(requests int) int {
	if way.together {
		return requests
	}
	return 1
}

// grantedLease is a lease in the answer of a function, or null.
type grantedLease struct {
	lock, owner pgtype.Text
	id          pgtype.UUID
	token       pgtype.Int8
}

// grantedColumns are its columns in a row a.
const grantedColumns = "(a.lease).lock, (a.lease).owner_id, (a.lease).lease_id, (a.lease).fencing_token"

func (l *grantedLease) dest() []any { return []any{&l.lock, &l.owner, &l.id, &l.token} }

func (l *grantedLease) ref() store.LeaseRef {
	return store.LeaseRef{Lock: store.Name(l.lock.String), OwnerID: l.owner.String, ID: l.id.Bytes, Token: l.token.Int64}
}

// acquireFully sends a request to the function that decides everything. The lease has no token if it was not granted.
func (w *waysRun) acquireFully(
	ctx context.Context, way leaseWay, r waysRequest,
) (answer string, ref store.LeaseRef, err error) {
	const sql = "select a.outcome, coalesce((a.lease).end_reason, ''), " + grantedColumns + " from fence.acquire_lease(" +
		"fence.lease_request($1, $2, $3, $4, $5, $6, $7, $8, $9), $10, $11) a"
	var outcome, reason string
	var lease grantedLease
	err = w.bed.SQL.QueryRow(ctx, sql, w.name(way, r.name), r.owner, r.mode, r.scope, r.ttl, orNone(r.session), r.requestID,
		r.metadata, r.principal, r.waitMS, r.gateway).Scan(append([]any{&outcome, &reason}, lease.dest()...)...)
	if failed, ok := errors.AsType[*pgconn.PgError](err); ok && failed.Code == "LF003" {
		return "external", ref, nil
	}
	if outcome == "granted" {
		ref = lease.ref()
	}
	return strings.TrimSpace(outcome + " " + reason), ref, err
}

func orNone(id uuid.UUID) *uuid.UUID {
	if id == uuid.Nil {
		return nil
	}
	return &id
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

// decideReleases sends releases to the function of a way, and returns the answers to those that it has decided.
func (w *waysRun) decideReleases(
	ctx context.Context, way leaseWay, refs []store.LeaseRef,
) (map[store.Name]string, error) {
	answers := map[store.Name]string{}
	if way.release == "" {
		return answers, nil
	}
	for set := range slices.Chunk(refs, way.size(len(refs))) {
		var locks, owners []string
		var ids []uuid.UUID
		var tokens []int64
		for _, ref := range set {
			locks, owners = append(locks, string(ref.Lock)), append(owners, ref.OwnerID)
			ids, tokens = append(ids, ref.ID), append(tokens, ref.Token)
		}
		var lock store.Name
		var answer string
		err := w.each(ctx, "select lock, concat_ws(' ', 'released', mode, round(age_ms / 3600000)) from "+way.release,
			[]any{locks, owners, ids, tokens}, []any{&lock, &answer}, func() {
				w.decided[way.release]++
				answers[lock] = answer
			})
		if err != nil {
			return nil, err
		}
	}
	return answers, nil
}

// wait puts a request into the queue, if the lock is not free.
func (w *waysRun) wait(t *rapid.T) {
	request := drawRequest(t, rapid.SampledFrom(waysNames).Draw(t, "lock"))
	request.waitMS, request.gateway = 600_000, new(rapid.SampledFrom(waysGateways).Draw(t, "gateway"))
	w.acquireEverywhere(t, request, nil)
	// No wait is so short that it is rounded to none.
	w.exec(t, "update fence.waiters set queued_at = queued_at - interval '1 second'")
}

// handOver releases a lease and grants its lock to the waiters of a gateway.
func (w *waysRun) handOver(t *rapid.T) {
	leases := w.drawLeases(t, 1)
	if leases == nil {
		return
	}
	lease := leases[0]
	gateway := rapid.SampledFrom(waysGateways).Draw(t, "gateway")
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

func (w *waysRun) handOverBy(
	ctx context.Context, way leaseWay, ref store.LeaseRef, gateway string,
) (answers []string, granted []store.LeaseRef, err error) {
	const (
		releasedBy = "concat_ws(' ', status, mode, round(age_ms / 3600000))"
		columns    = ", coalesce(a.outcome, ''), " + grantedColumns + " from "
	)
	var released string
	sql, args := "select "+releasedBy+columns+"fence.hand_over($1, $2, $3, $4, $5) a", append(argsOf(ref), gateway)
	if !way.handOver {
		const release = "select " + releasedBy + " from fence.release_lease($1, $2, $3, $4)"
		if err := w.bed.SQL.QueryRow(ctx, release, argsOf(ref)...).Scan(&released); err != nil {
			return nil, nil, err
		}
		sql = "select $3::text" + columns + "(select 1) one left join fence.grant_next($2, $1, 'node') a on true"
		args = []any{ref.Lock, gateway, released}
	}
	var outcome string
	var lease grantedLease
	err = w.each(ctx, sql, args, append([]any{&released, &outcome}, lease.dest()...), func() {
		answer := released + " " + outcome
		if outcome == "granted" {
			granted = append(granted, lease.ref())
			answer += " " + lease.owner.String
		}
		answers = append(answers, answer)
	})
	return answers, granted, err
}

func argsOf(ref store.LeaseRef) []any { return []any{ref.Lock, ref.OwnerID, ref.ID, ref.Token} }

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

// waysRows are the rows of a world whose prefix is $1. Tokens are their rank among the grants of their lock, times are
// rounded. IDs and what is true of every world are left out.
const waysRows = `
	with l as (
		select *, substr(lock, length($1) + 1) as name, row_number() over (partition by lock order by fencing_token) as rank
		from fence.leases where lock = $1 or starts_with(lock, $1 || '/')
	)
	select array_agg(line order by line) from (
		select concat_ws(' ', 'lease', name, rank, owner_id, 'of', principal, mode, scope, ttl_ms, requested_ttl_ms,
			session_id is not null, waited_ms > 0, round(extract(epoch from hold_until - granted_at) * 1000),
			case when isfinite(expires_at) then round(extract(epoch from expires_at - granted_at) / 3600) end,
			'checked', case when isfinite(check_at) then round(extract(epoch from check_at - granted_at) / 3600) end,
			'request', request_id, adopted, metadata, 'ended', ended_at is not null, ended_at >= granted_at, end_reason,
			end_note, kept) from l
		union all
		select concat_ws(' ', 'fence', substr(resource, length($1) + 1), open, limited, last_token > granted_token,
			last_token > 0, last_sequence, last_version, admitted_in is null,
			(select count(*) from l where l.lock = f.resource and l.fencing_token <= f.granted_token))
		from fence.fences f where resource = $1 or starts_with(resource, $1 || '/')
		union all
		select concat_ws(' ', 'subtree', substr(s.name, length($1) + 1), open,
			(select count(*) from l where l.lock = s.name and l.fencing_token <= s.granted_token))
		from fence.subtrees s where s.name = $1 or starts_with(s.name, $1 || '/')
		union all
		select concat_ws(' ', 'waiter', substr(lock, length($1) + 1), row_number() over (partition by lock order by ticket),
			gateway_id, owner_id, 'of', principal, mode, scope, ttl_ms, 'request', request_id, metadata)
		from fence.waiters where lock = $1 or starts_with(lock, $1 || '/')
		union all
		select concat_ws(' ', 'event', substr(e.lock, length($1) + 1), row_number() over (partition by e.lock order by e.id),
			kind, owner_id, mode, scope, reason, expires_at is not null,
			(select count(*) from l where l.lock = e.lock and l.fencing_token <= e.fencing_token))
		from fence.events e where e.lock = $1 or starts_with(e.lock, $1 || '/')
		union all
		select concat_ws(' ', 'unused', substr(u.name, length($1) + 1)) from fence.unused u
		where u.name = $1 or starts_with(u.name, $1 || '/')
	) as rows (line)`

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
