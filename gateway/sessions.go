package gateway

import (
	"net/http"

	"github.com/google/uuid"
	"github.com/gorilla/mux"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/store"
)

// A session's ID is a secret, like a lease's: it is told to its owner alone, and never logged.

func (g *Gateway) createSession(w http.ResponseWriter, r *http.Request) error {
	var body api.SessionRequest
	if err := g.readJSON(w, r, &body); err != nil {
		return err
	}
	duration, err := ttl(body.TTLMS)
	if err != nil {
		return err
	}
	ctx, cancel := g.work(r)
	defer cancel()
	session, err := g.backend.CreateSession(ctx, store.SessionRequest{OwnerID: body.OwnerID, TTL: duration, Metadata: unlessNull(body.Metadata)})
	g.metrics.sessionOperation("create", err)
	if err != nil {
		return err
	}
	return answerJSON(w, http.StatusCreated, sessionAnswer(session))
}

func (g *Gateway) keepSessionAlive(w http.ResponseWriter, r *http.Request) error {
	id, err := pathSession(r)
	if err != nil {
		return err
	}
	if err := g.readNothing(w, r); err != nil {
		return err
	}
	ctx, cancel := g.work(r)
	defer cancel()
	session, err := g.backend.KeepAlive(ctx, id)
	g.metrics.keptAlive(session, err)
	if err != nil {
		return err
	}
	return answerJSON(w, http.StatusOK, sessionAnswer(session))
}

func (g *Gateway) getSession(w http.ResponseWriter, r *http.Request) error {
	id, err := pathSession(r)
	if err != nil {
		return err
	}
	ctx, cancel := g.work(r)
	defer cancel()
	session, leases, err := g.backend.Session(ctx, id)
	if err != nil {
		return err
	}
	answer := sessionAnswer(session)
	answer.Leases = &leases
	return answerJSON(w, http.StatusOK, answer)
}

func (g *Gateway) endSession(w http.ResponseWriter, r *http.Request) error {
	id, err := pathSession(r)
	if err != nil {
		return err
	}
	ctx, cancel := g.work(r)
	defer cancel()
	released, err := g.backend.EndSession(ctx, id)
	g.metrics.sessionOperation("end", err)
	if err != nil {
		return err
	}
	return answerJSON(w, http.StatusOK, api.SessionEnded{Ended: true, Released: released})
}

// pathSession reads a session's ID from the path; the URL takes no parameters.
func pathSession(r *http.Request) (uuid.UUID, error) {
	if _, err := query(r); err != nil {
		return uuid.UUID{}, err
	}
	return parseSessionID("The session_id in the path", mux.Vars(r)["session"])
}

// parseSessionID reads a session's ID. No session has the ID of zeros, which to the store is none.
func parseSessionID(field, text string) (uuid.UUID, error) {
	id, err := uuid.Parse(text)
	if err != nil || len(text) != 36 || id == uuid.Nil {
		return uuid.UUID{}, invalid("%s is not one that POST /v1/sessions returned.", field)
	}
	return id, nil
}

func sessionAnswer(session store.Session) api.Session {
	return api.Session{
		SessionID: session.ID.String(), OwnerID: session.OwnerID, TTLMS: session.TTL.Milliseconds(),
		CreatedAt: api.Time{Time: session.CreatedAt}, ExpiresAt: api.Time{Time: session.ExpiresAt},
		State: string(session.State), Metadata: session.Metadata,
	}
}
