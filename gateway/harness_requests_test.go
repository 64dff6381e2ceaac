package gateway

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/store"
)

// Steps that many groups have in common.

func lockPath(lock, action string) string { return "/v1/locks/" + url.PathEscape(lock) + action }

func recordPath(resource, key string) string {
	return "/v1/resources/" + url.PathEscape(resource) + "/records/" + url.PathEscape(key)
}

// token is the header of a write under a lease; sequence 0 is a write without a number.
func token(lease api.Lease, sequence int64) string {
	fencingToken := api.FencingToken{Token: lease.FencingToken}
	if sequence != 0 {
		fencingToken.Sequence = &sequence
	}
	return api.HeaderFencingToken + ": " + fencingToken.String()
}

func encode(document any) string {
	text, err := json.Marshal(document)
	if err != nil {
		panic(err) // documents are the tests' own
	}
	return string(text)
}

func (c client) acquire(t testing.TB, lock, owner string) api.Lease {
	t.Helper()
	return as[api.Lease](t, c.post(t, lockPath(lock, "/acquire"), encode(api.AcquireRequest{OwnerID: owner})), http.StatusOK)
}

func (c client) release(t testing.TB, lease api.Lease) {
	t.Helper()
	as[api.Released](t, c.post(t, lockPath(lease.Lock, "/release"), refOf(lease)), http.StatusOK)
}

// refOf is the body of a release or a renewal.
func refOf(lease api.Lease) string {
	return encode(api.ReleaseRequest{OwnerID: lease.OwnerID, LeaseID: lease.LeaseID, FencingToken: lease.FencingToken})
}

// resignOf is the body of a resignation from a term.
func resignOf(lease api.Lease) string {
	return encode(api.ResignRequest{Candidate: lease.OwnerID, LeaseID: lease.LeaseID, Term: lease.FencingToken})
}

// noSession is the ID of a session that there is not.
const noSession = "9d1c6d4e-7a43-4a0e-9b53-6f2f0c8d1e77"

func (c client) createSession(t testing.TB, owner string, ttl time.Duration) api.Session {
	t.Helper()
	ms := ttl.Milliseconds()
	return as[api.Session](t, c.post(t, "/v1/sessions", encode(api.SessionRequest{OwnerID: owner, TTLMS: &ms})), http.StatusCreated)
}

// wait stands in line, for as long as the gateway has it, and gives the answer when it comes.
func (c client) wait(t testing.TB, lock string, request api.AcquireRequest) <-chan answer {
	t.Helper()
	request.WaitMS = cmp.Or(request.WaitMS, store.WaitMax.Milliseconds())
	return inBackground(func() answer { return c.post(t, lockPath(lock, "/acquire"), encode(request)) })
}

// awaitQueue returns when the line before a lock is as given.
func (c client) awaitQueue(t testing.TB, lock string, owners ...string) {
	t.Helper()
	eventually(t, fmt.Sprintf("%q stand in line before %s", owners, lock), func() bool {
		var queued []string
		for _, waiter := range as[api.Lock](t, c.get(t, lockPath(lock, "")), http.StatusOK).Queue {
			queued = append(queued, waiter.OwnerID)
		}
		return slices.Equal(queued, owners)
	})
}

// put writes the record "k" of the lease's resource.
func (c client) put(t testing.TB, lease api.Lease, sequence int64, value string) answer {
	t.Helper()
	return c.send(t, http.MethodPut, recordPath(lease.Lock, "k"), value, token(lease, sequence))
}

// expire makes a lease end an hour ago, by the database's clock.
func (h *harness) expire(t testing.TB, lease api.Lease) {
	t.Helper()
	h.exec(t, `update fence.leases set granted_at = granted_at - interval '2 hours', expires_at = clock_timestamp() - interval '1 hour', check_at = '-infinity'
		where lock = $1 and fencing_token = $2`, lease.Lock, lease.FencingToken)
}

func (h *harness) exec(t testing.TB, sql string, args ...any) {
	t.Helper()
	if _, err := h.db.Exec(t.Context(), sql, args...); err != nil {
		t.Fatal(err)
	}
}

// count is the number that a query gives.
func (h *harness) count(t testing.TB, sql string, args ...any) (number int64) {
	t.Helper()
	if err := h.db.QueryRow(t.Context(), sql, args...).Scan(&number); err != nil {
		t.Fatal(err)
	}
	return number
}

// holdFence locks the row of a fence, so that whoever decides about it waits, until it is let go.
func (h *harness) holdFence(t testing.TB, resource string) (letGo func()) {
	t.Helper()
	tx, err := h.db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), "select from fence.fences where resource = $1 for update", resource); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) })
	return func() {
		if err := tx.Commit(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// awaitWaiting returns when n of the gateway's sessions wait for a row.
func (h *harness) awaitWaiting(t testing.TB, n int64) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d sessions wait for a row", n), func() bool {
		return h.count(t, `select count(*) from pg_stat_activity
			where datname = current_database() and application_name = 'fencegate' and wait_event_type = 'Lock'`) == n
	})
}

// sessions are the gateway's, each with the time at which it began.
func (h *harness) sessions(t testing.TB) []string {
	t.Helper()
	rows, err := h.db.Query(t.Context(), `select pid || ' since ' || backend_start from pg_stat_activity
		where datname = current_database() and application_name = 'fencegate' order by 1`)
	if err != nil {
		t.Fatal(err)
	}
	sessions, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return sessions
}

// eventually waits for what must come; a minute is for a machine that is busy with other things.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for !holds() {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain: %s", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}
