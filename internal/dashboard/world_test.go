//go:build unix

package dashboard

import (
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fencegate/fencegate/gateway/api"
)

// world is a database in which everything that the dashboard shows is there at least once.
type world struct {
	*gateway

	stale, current api.Lease // of worldLock
}

const (
	worldLock     = "imports/customers/2026"
	worldElection = "schedulers/eu"
)

// newWorld tells, by the API, a small group: two imports, of which one lost its lock and did not notice; who waits for them; a session; an
// election; a policy.
func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{gateway: startGateway(t)}
	_, err := w.PutPolicy(t.Context(), "reports", api.PolicyRequest{Rule: "same_token", RequireLiveLease: true})
	check(t, err)

	w.stale, w.current = w.zombie(t, worldLock, "row/1", "importer-7f3a", "importer-91bc")
	w.put(t, w.current, "row/1", "Ada", 1)
	w.put(t, w.current, "row/2", "Grace", 2)
	w.queue(t, worldLock, "importer-c0de")
	w.queue(t, worldLock, "importer-d00d")

	session, err := w.CreateSession(t.Context(), api.SessionRequest{OwnerID: "indexer-1", TTLMS: ptr(longTTL), Metadata: []byte(`{"host":"a7"}`)})
	check(t, err)
	for _, lock := range []string{"index/a", "index/b"} {
		_, err = w.Acquire(t.Context(), lock, api.AcquireRequest{OwnerID: "indexer-1", SessionID: &session.SessionID})
		check(t, err)
	}
	for _, reader := range []string{"reader-1", "reader-2", "reader-3"} {
		_, err = w.Acquire(t.Context(), "reports/daily", api.AcquireRequest{OwnerID: reader, Mode: "shared", TTLMS: ptr(longTTL)})
		check(t, err)
	}
	_, err = w.Campaign(t.Context(), worldElection, api.CampaignRequest{Candidate: "scheduler-a", TTLMS: ptr(longTTL), Value: []byte(`{"address":"10.0.0.7:80"}`)})
	check(t, err)
	return w
}

// sql runs statements in the gateway's database, to make more of something than the API makes in good time.
func (g *gateway) sql(t *testing.T, statements ...string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), g.database)
	check(t, err)
	defer func() { check(t, conn.Close(t.Context())) }()
	for _, statement := range statements {
		_, err := conn.Exec(t.Context(), statement)
		check(t, err)
	}
}

// manyLocks makes n locks many/00001…, of which each is held, the last for longest.
func (g *gateway) manyLocks(t *testing.T, n int) {
	t.Helper()
	g.sql(t, fmt.Sprintf(`insert into fence.fences (resource, granted_token, open)
			select 'many/' || lpad(i::text, 5, '0'), i, true from generate_series(1, %d) i`, n),
		fmt.Sprintf(`insert into fence.leases (lock, fencing_token, lease_id, owner_id, ttl_ms, granted_at, expires_at)
			select 'many/' || lpad(i::text, 5, '0'), i, gen_random_uuid(), 'owner-' || i %% 97, 3600000,
				clock_timestamp() - i * interval '1 ms', clock_timestamp() + interval '1 h' + i * interval '1 s' from generate_series(1, %d) i`, n),
		fmt.Sprintf(`select setval('fence.tokens', %d)`, n), `analyze fence.fences`, `analyze fence.leases`)
}

// manyRejections makes n groups of rejected writes, the last of which is the newest.
func (g *gateway) manyRejections(t *testing.T, n int) {
	t.Helper()
	g.sql(t, fmt.Sprintf(`insert into fence.rejections (resource, key, code, reason, source, address, fencing_token, granted_token, last_token, last_sequence,
				owner_id, late_ms, count, first_at, last_at, changed_at)
			select 'many/' || lpad(i::text, 5, '0'), 'key', 'token_stale', 'superseded', 'http', '10.0.0.' || i %% 250, i, i + 1, 0, 0,
				'owner-' || i %% 97, exp((i %% 97) / 6.0)::bigint, 1 + i %% 9, at, at, at
			from generate_series(1, %d) i, lateral (select clock_timestamp() - (%d - i) * interval '1 s' as at) t`, n, n), `analyze fence.rejections`)
}
