package postgres_test

import (
	"fmt"
	"time"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/storetest"
)

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
