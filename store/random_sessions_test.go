package store_test

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
	r.world = r.world.WithSession(session)
}

// session names one of the last sessions, or one that there never was.
func (r *randomRun) session(t *rapid.T) uuid.UUID {
	back := rapid.IntRange(0, min(len(r.sessions), 3)).Draw(t, "session")
	if back == len(r.sessions) {
		return uuid.New()
	}
	return r.sessions[len(r.sessions)-1-back]
}

func (r *randomRun) keepAlive(t *rapid.T) {
	id := r.session(t)
	session, err := r.gateway.KeepAlive(t.Context(), id)
	next, want := r.world.KeepAlive(id, session.ExpiresAt.UnixMicro())
	r.same(t, fmt.Sprintf("keep %s alive", id), storetest.ToldSession(storetest.CodeRenewed, session, err), want)
	r.world = next
}

func (r *randomRun) endSession(t *rapid.T) {
	id := r.session(t)
	leases, err := r.gateway.EndSession(t.Context(), id)
	next, want := r.world.EndSession(id)
	r.same(t, fmt.Sprintf("end %s", id), storetest.ToldEnded(leases, err), want)
	r.world = next
}

// expireSession moves the end of a session to now.
func (r *randomRun) expireSession(t *rapid.T) {
	id := r.session(t)
	var at time.Time
	err := r.sql.QueryRow(t.Context(), `
		update fence.sessions set expires_at = clock_timestamp(), check_at = '-infinity' where session_id = $1 and ended_at is null and expires_at > clock_timestamp()
		returning expires_at`, id).Scan(&at)
	if err != nil {
		t.Skip("the session is over")
	}
	r.world = r.world.SessionOver(id, storetest.Expired, at.UnixMicro())
}

func (r *randomRun) lookAtSession(t *rapid.T) { r.sameSession(t, r.session(t)) }

func (r *randomRun) sameSession(t *rapid.T, id uuid.UUID) {
	session, leases, err := r.gateway.Session(t.Context(), id)
	r.same(t, fmt.Sprintf("session %s", id), storetest.ToldSessionState(session, leases, err), r.world.Session(id))
}
